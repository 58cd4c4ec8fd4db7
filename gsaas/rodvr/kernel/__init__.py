# SPDX-License-Identifier: Apache-2.0
"""The kernel's side of RODVR: nftables, links and connection tracking through netlink.

This is the only place in `gsaas.rodvr` that uses netlink. `Kernel` is what the endpoint uses, and `Datapath` what it
changes and reads; the other modules are its parts:

    ruleset    RODVR's two tables as data              encoder         the operations of a plan as messages
    links      veth pair, route, sysctls               decoder         the state that dumps describe
    conntrack  reading and cutting connections         events          link and table notifications
    resets     provoking resets of cut connections     chains          nftables rules of other programs
    attributes  numbers of netlink attributes          legacy_tables   rules of iptables-legacy
    extensions  matches and targets of iptables

What the GPU hosts' fence uses too is in `gsaas.netlink`.

`CAP_NET_ADMIN` is enough for all of it. A datapath inside a *named* network namespace (standalone mode
and tests) also needs `CAP_SYS_ADMIN`, to open its sockets there.
"""

from gsaas.netlink.transport import NetlinkRefused
from gsaas.rodvr.kernel.datapath import Datapath, DatapathSnapshot
from gsaas.rodvr.kernel.events import Events
from gsaas.rodvr.kernel.kernel import Kernel

__all__ = ["Datapath", "DatapathSnapshot", "Events", "Kernel", "NetlinkRefused"]
