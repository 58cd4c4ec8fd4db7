# SPDX-License-Identifier: Apache-2.0
"""RODVR, the datapath endpoint of a compute host. Begin with `endpoint`.

endpoint        begins here: the desired bindings  service        the endpoint on the message bus
port_bindings   those of VM ports                  local_bindings those of the host's own programs
reconciler      makes the kernel equal to them     event_loop     the thread that reacts to events
executor        carries out plans                  session        what is open in the kernel
plan            what to change: pure               identities     node-local addresses of ports: pure
problems        what is reported and tried again   installations  what is installed, to announce
forwarding      other programs' firewalls: pure    kernel         nftables, links, connection tracking
limits          what one VM may take: pure
"""
