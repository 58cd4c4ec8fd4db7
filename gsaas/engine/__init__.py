# SPDX-License-Identifier: Apache-2.0
"""The engine drives each lease to the state that the database asks for, one idempotent step at a time.

steps          decides the next step of a lease: pure      driver         observes a lease and executes its steps
workqueue      hands a lease to one worker at a time       rpc_endpoint   serves the engine's topic on the message bus
desired_state  the desired state of a GPU host: pure       gpu_hosts      sends it to monitors, stores their reports
callers        tokens of the callers, in memory only       notifications  listens to Nova's notifications
readings       what hosts report of leases, if believed
processes      names of engine processes                   service        starts and stops all of it
"""
