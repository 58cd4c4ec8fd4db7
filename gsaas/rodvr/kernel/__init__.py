"""The kernel's side of RODVR: nftables, links and connection tracking through netlink.

This is the only place in `gsaas.rodvr` that knows netlink. `Datapath` is what the agent uses; the rest
are its parts:

    ruleset    our two tables as data                 ports   the messages of one port, packed by hand
    links      veth pair, route, sysctls              events  link and ruleset notifications
    conntrack  reading and cutting connections        hooks   other people's forward chains
    resets     provoking resets of cut connections

What is not RODVR's alone is in `gsaas.netlink`.

`CAP_NET_ADMIN` is enough for all of it. A datapath inside a *named* network namespace (standalone mode
and tests) also needs `CAP_SYS_ADMIN`, to open its sockets there.
"""

from gsaas.netlink.transport import Refused
from gsaas.rodvr.kernel.datapath import Datapath, Found
from gsaas.rodvr.kernel.events import Events, Watch

__all__ = ["Datapath", "Events", "Found", "Refused", "Watch"]
