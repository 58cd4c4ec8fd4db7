"""The table `inet gsaas_fence`, as data.

    input   packets to the ports of daemons: what RODVR has translated on this very host, and what an admitted
            address sends, passes; everything else is answered with a reset and counted
    output  the same for programs of this host, whose packets never cross a wire: the monitor passes, and others if
            this host itself is admitted

One set holds everybody who is admitted, as (address, port). Whoever is in it may have a limited number of connections
at a time. Every packet is looked at, not only the first of a connection: who is admitted no more is cut off at once.
"""

from __future__ import annotations

from pyroute2.netlink import NLM_F_CREATE
from pyroute2.netlink.nfnetlink import nftsocket as nft

from gsaas.gpu_host.fence.layout import Layout
from gsaas.netlink import expressions as ex
from gsaas.netlink.expressions import NETWORK, TRANSPORT, Expression, R
from gsaas.netlink.wire import Message

INET = nft.NFPROTO_INET
TABLE = "gsaas_fence"
ADMITTED, CONNECTIONS, REFUSED = "admitted", "connections", "refused"
HERE = "127.0.0.1"
"""Stands, in the set, for this host itself."""
RODVR_DEVICE = b"rodvr1"
"""Where the packets of VMs of this host arrive; RODVR lets nothing through there that it has not translated."""

_INPUT, _OUTPUT = 1, 3
_PRIORITY = -10
_TCP, _IPV4 = b"\x06", b"\x02"
_AT_LEAST, _AT_MOST = 5, 3
_GOTO = -4
_SOURCES = 65535
_REFUSED_SOURCES = 4096


def build(layout: Layout, flags: int) -> list[Message]:
    """The whole table, with nobody admitted."""
    pair = (nft.DATA_TYPE_IPADDR, nft.DATA_TYPE_INET_SERVICE)
    source = (nft.DATA_TYPE_IPADDR,)
    return [
        ex.add_table(INET, TABLE, flags, layout.comment),
        ex.add_set(INET, TABLE, ADMITTED, 1, pair, 8),
        ex.add_set(INET, TABLE, CONNECTIONS, 2, pair, 8, counts=_SOURCES),
        ex.add_set(INET, TABLE, REFUSED, 3, source, 4, counts=_REFUSED_SOURCES),
        _add_chain("guard"),
        _add_chain("local"),
        ex.add_chain(INET, TABLE, "input", _INPUT, _PRIORITY),
        ex.add_chain(INET, TABLE, "output", _OUTPUT, _PRIORITY),
        *[ex.add_rule(INET, TABLE, chain, rule) for chain, rule in rules(layout)],
    ]


def rules(layout: Layout) -> list[tuple[str, list[Expression]]]:
    """Every rule with its chain, in order."""
    accept = [ex.verdict(ex.ACCEPT)]
    refuse = [ex.counter(), ex.reset_connection()]
    ipv4 = [ex.meta(nft.Meta.NFT_META_NFPROTO, R), ex.compare(R, _IPV4)]
    key = [ex.load(NETWORK, 12, 4, R), ex.load(TRANSPORT, 2, 2, R + 1)]
    here = [ex.immediate(R, bytes([127, 0, 0, 1])), ex.load(TRANSPORT, 2, 2, R + 1)]
    opens = [
        ex.load(TRANSPORT, 13, 1, R),
        ex.mask(R, b"\x17"),
        ex.compare(R, b"\x02"),
    ]
    inside = _device(nft.Meta.NFT_META_OIFNAME, b"lo")
    found = [
        ("guard", [*_device(nft.Meta.NFT_META_IIFNAME, b"lo"), *accept]),
        ("guard", [*_device(nft.Meta.NFT_META_IIFNAME, RODVR_DEVICE), *accept]),
        (
            "guard",
            [*ipv4, *key, _is_in(ADMITTED, 1), *opens, *key]
            + [_over(CONNECTIONS, 2, layout.connections), *refuse],
        ),
        ("guard", [*ipv4, *key, _is_in(ADMITTED, 1), *accept]),
        ("guard", [*ipv4, ex.load(NETWORK, 12, 4, R), ex.count_in(REFUSED, 3, R)]),
        ("guard", refuse),
        ("local", [*here, _is_in(ADMITTED, 1), *accept]),
        ("local", refuse),
    ]
    for uid in sorted({0, layout.uid}, reverse=True):
        same = [ex.meta(nft.Meta.NFT_META_SKUID, R), ex.compare(R, ex.host32(uid))]
        found.insert(6, ("local", [*same, *accept]))
    for first, last in layout.ranges:
        found.append(("input", [*_tcp_to(first, last), _goto("guard")]))
        found.append(("output", [*inside, *_tcp_to(first, last), _goto("local")]))
    return found


def rules_per_chain(layout: Layout) -> dict[str, int]:
    """How many rules each chain has: fewer or more, and somebody has been at them."""
    counts: dict[str, int] = {}
    for chain, _ in rules(layout):
        counts[chain] = counts.get(chain, 0) + 1
    return counts


def _tcp_to(first: int, last: int) -> list[Expression]:
    return [
        ex.meta(nft.Meta.NFT_META_L4PROTO, R),
        ex.compare(R, _TCP),
        ex.load(TRANSPORT, 2, 2, R),
        ex.compare(R, first.to_bytes(2, "big"), _AT_LEAST),
        ex.compare(R, last.to_bytes(2, "big"), _AT_MOST),
    ]


def _device(key: int, name: bytes) -> list[Expression]:
    return [ex.meta(key, R), ex.compare(R, name.ljust(16, b"\0"))]


def _is_in(name: str, set_id: int) -> Expression:
    return ex.genex("lookup", {"set": name, "set_id": set_id, "sreg": R})


def _over(name: str, set_id: int, count: int) -> Expression:
    """True for a connection that makes more than *count* with the key in the registers."""
    limit = ex.genex("connlimit", {"count": count, "flags": {"NFT_LIMIT_F_INV"}})
    fields = {"set_name": name, "set_id": set_id, "op": 0, "sreg_key": R, "expr": limit}
    return ex.genex("dynset", fields)


def _goto(chain: str) -> Expression:
    code = {"attrs": [("NFTA_VERDICT_CODE", _GOTO), ("NFTA_VERDICT_CHAIN", chain)]}
    return ex.genex("immediate", {"dreg": 0, "data": {"attrs": [("NFTA_DATA_VERDICT", code)]}})


def _add_chain(name: str) -> Message:
    """A chain that others go to."""
    fields = [("NFTA_CHAIN_TABLE", TABLE), ("NFTA_CHAIN_NAME", name)]
    return ex.encode(nft.nft_chain_msg, nft.NFT_MSG_NEWCHAIN, INET, fields, NLM_F_CREATE, name)
