# SPDX-License-Identifier: Apache-2.0
"""What `./dev bench fleet` starts beside the servers.

agents       a process that plays the agents of some hosts      controllers  an engine and an API worker
rows         the hosts, GPUs and leases in the database         load         clients that launch and release leases
usage        CPU time, messages and rows of the processes
"""
