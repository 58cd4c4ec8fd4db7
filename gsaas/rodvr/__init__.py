# SPDX-License-Identifier: Apache-2.0
"""RODVR, the datapath endpoint of a compute host. Begin with `endpoint`.

endpoint        begins here: orders in, reports out  service        the endpoint on the message bus
port_bindings   the desired bindings of VM ports     local_bindings those of the host's own programs
plan            what to change in the kernel: pure   kernel         nftables, links, connection tracking
problems        what is reported and tried again     installations  what is installed, to announce
identities      node-local addresses of ports: pure  real_addresses where mappings may lead: pure
forwarding      other programs' firewalls: pure      order_serials  which order is newer: pure
config          what an endpoint is configured with
"""
