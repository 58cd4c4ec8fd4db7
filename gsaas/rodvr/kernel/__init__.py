"""The kernel's side of RODVR: nftables, links and connection tracking through netlink.

This is the only place in `gsaas.rodvr` that knows netlink. `Datapath` is what the agent uses; the rest
are its parts:

    wire         attributes and messages as bytes          transport    atomic batches, dumps, errors
    expressions  rule expressions, built by pyroute2       ruleset      our two tables as data
    ports        the messages of one port, packed by hand  links        veth pair, route, sysctls
    conntrack    reading and cutting connections           events       link and ruleset notifications
    hooks        other people's forward chains             namespace    opening things in a namespace

`CAP_NET_ADMIN` is enough for all of it. A datapath inside a *named* network namespace (standalone mode
and tests) also needs `CAP_SYS_ADMIN`, to open its sockets there.
"""

from gsaas.rodvr.kernel.datapath import Datapath
from gsaas.rodvr.kernel.events import Events, Watch
from gsaas.rodvr.kernel.transport import Refused

__all__ = ["Datapath", "Events", "Refused", "Watch"]
