# SPDX-License-Identifier: Apache-2.0
"""The engine moves each lease to the state that the database asks for, one idempotent step at a time.

service             starts and stops all of it; has the workers and the audit
steps               decides the next step of a lease: pure
reconciler          observes a lease, and executes its steps until none is left
workqueue           hands a lease to one worker at a time
desired_state       the desired state of a GPU host: pure
gpu_hosts           sends it to monitors, and stores what they report
idle, idle_leases   what happens to a lease that nothing uses: decided (pure), and done
host_reports        which parts of reports are valid, and are stored: pure
readings            makes readings of leases from reports
real_addresses      which addresses on the GPU network are believed
corrections         which hosts are being corrected now
agents, callers     how agents are reached; the tokens of callers, in memory only
nova_notifications  listens to Nova's notifications about servers
rpc_endpoint        serves the engine's topic on the message bus
processes           names of engine processes
"""
