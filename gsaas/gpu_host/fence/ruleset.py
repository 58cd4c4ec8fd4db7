# SPDX-License-Identifier: Apache-2.0
"""The table `inet gsaas_fence`, as data.

    input   packets to the ports of daemons: those that RODVR has translated on this host and those of an admitted
            address pass; every other one is answered with a TCP reset and counted
    output  the same for programs of this host, whose packets use the loopback device: those of the monitor's control
            group pass, those of users that systemd makes for units, which daemons have, do not, and all others do if
            this host itself is admitted. These users open no connection to such ports of other hosts either, where
            this host's address may be admitted

A connection is only opened to the program that the port belongs to: the socket that would take it has to be of the
control group of that port's daemon. So a daemon that listens at the port of a neighbour gets no client of the
neighbour's, nor the monitor. None opens a connection from the port of another one either: of the socket that this
leaves behind when it is closed, the kernel does not know the control group any more.

One set contains all admissions, as (address, port), and one all daemons, as (port, control group). Each admission has a
limited number of connections at a time. The rules check every packet, not only the first of a connection, so an address
that is not admitted any more is cut off at once.
"""

from __future__ import annotations

from pyroute2.netlink import NLM_F_CREATE
from pyroute2.netlink.nfnetlink import nftsocket as nft
from pyroute2.nftables.expressions import genex

from gsaas.gpu_host.fence.layout import ControlGroup, FenceLayout
from gsaas.netlink import expressions as ex
from gsaas.netlink.expressions import NETWORK, TRANSPORT, Expression, R
from gsaas.netlink.pyroute2_releases import Meta
from gsaas.netlink.wire import Message

INET = nft.NFPROTO_INET
TABLE = "gsaas_fence"
ADMITTED, CONNECTIONS, REFUSED, LISTENERS = "admitted", "connections", "refused", "listeners"
DYNAMIC_USERS = (61184, 65519)
"""First and last UID of the users that systemd makes for units (systemd's UIDS-GIDS document)."""
HERE = "127.0.0.1"
"""The address that stands for this host itself in the set."""
RODVR_DEVICE = b"rodvr1"
"""The device over which packets of this host's VMs arrive; RODVR drops all there that it has not translated."""

_INPUT, _OUTPUT = 1, 3  # NF_INET_LOCAL_IN, NF_INET_LOCAL_OUT
_PRIORITY = -10  # before the filter chains of other programs, which have priority 0
_TCP, _IPV4 = b"\x06", b"\x02"  # IPPROTO_TCP, NFPROTO_IPV4
_AT_LEAST, _AT_MOST = 5, 3  # NFT_CMP_GTE, NFT_CMP_LTE
_GOTO = -4  # NFT_GOTO
_SOURCES = 65535
"""Upper bound of the (address, port) pairs whose connections are counted."""
_REFUSED_SOURCES = 4096
"""Upper bound of the addresses whose refused packets are counted."""


def build(layout: FenceLayout, flags: int) -> list[Message]:
    """Return the messages that build the whole table, without elements; *flags* are the table's."""
    pair = (nft.DATA_TYPE_IPADDR, nft.DATA_TYPE_INET_SERVICE)
    source = (nft.DATA_TYPE_IPADDR,)
    listener = (nft.DATA_TYPE_INET_SERVICE, nft.DATA_TYPE_CGROUPV2)
    return [
        ex.add_table(INET, TABLE, flags, layout.comment),
        ex.add_set(INET, TABLE, ADMITTED, 1, pair, 8),
        ex.add_set(INET, TABLE, CONNECTIONS, 2, pair, 8, counts=_SOURCES),
        ex.add_set(INET, TABLE, REFUSED, 3, source, 4, counts=_REFUSED_SOURCES),
        ex.add_set(INET, TABLE, LISTENERS, 4, listener, 12),
        _add_chain("guard"),
        _add_chain("local"),
        ex.add_chain(INET, TABLE, "input", _INPUT, _PRIORITY),
        ex.add_chain(INET, TABLE, "output", _OUTPUT, _PRIORITY),
        *[ex.add_rule(INET, TABLE, chain, rule) for chain, rule in rules(layout)],
    ]


def rules(layout: FenceLayout) -> list[tuple[str, list[Expression]]]:
    """Return every rule with its chain, in order."""
    accept = [ex.verdict(ex.ACCEPT)]
    refuse = [ex.counter(), ex.reset_connection()]
    ipv4 = [ex.meta(Meta.NFT_META_NFPROTO, R), ex.compare(R, _IPV4)]
    key = [ex.load(NETWORK, 12, 4, R), ex.load(TRANSPORT, 2, 2, R + 1)]
    here = [ex.immediate(R, bytes([127, 0, 0, 1])), ex.load(TRANSPORT, 2, 2, R + 1)]
    # TCP flags: SYN without FIN, RST and ACK opens a connection.
    opens = [
        ex.load(TRANSPORT, 13, 1, R),
        ex.mask(R, b"\x17"),
        ex.compare(R, b"\x02"),
    ]
    of_a_unit = _between(Meta.NFT_META_SKUID, *DYNAMIC_USERS)
    inside = _device(Meta.NFT_META_OIFNAME, b"lo")
    foreign = _not_the_daemon(layout.daemon_level)
    outside = _outside(layout.daemon_top)
    chains = [
        # Before what passes: neither the monitor nor this host's programs and VMs may meet it.
        *([("guard", [*opens, *_port(2), *foreign, *refuse])] if foreign else []),
        *([("guard", [*opens, *outside, *refuse])] if outside else []),
        ("guard", [*_device(Meta.NFT_META_IIFNAME, b"lo"), *accept]),
        ("guard", [*_device(Meta.NFT_META_IIFNAME, RODVR_DEVICE), *accept]),
        (
            "guard",
            [*ipv4, *key, _is_in(ADMITTED, 1), *opens, *key]
            + [_over(CONNECTIONS, 2, layout.connections), *refuse],
        ),
        ("guard", [*ipv4, *key, _is_in(ADMITTED, 1), *accept]),
        ("guard", [*ipv4, ex.load(NETWORK, 12, 4, R), ex.count_in(REFUSED, 3, R)]),
        ("guard", refuse),
        *_of_the_monitor(layout.monitor, accept),
        # Also where programs of this host are admitted: a daemon is not one of them.
        ("local", [*of_a_unit, *refuse]),
        ("local", [*here, _is_in(ADMITTED, 1), *accept]),
        ("local", refuse),
    ]
    for first, last in layout.ranges:
        chains.append(("input", [*_tcp_to(first, last), _goto("guard")]))
        chains.append(("output", [*inside, *_tcp_to(first, last), _goto("local")]))
        chains.append(("output", [*_tcp_to(first, last), *opens, *of_a_unit, *refuse]))
        if foreign:
            # Dropped, as a reset would not pass either: it would go to a port of daemons.
            drop = [ex.counter(), ex.verdict(ex.DROP)]
            chains.append(("output", [*_tcp(0, first, last), *opens, *_port(0), *foreign, *drop]))
    return chains


def _of_the_monitor(
    group: ControlGroup | None, accept: list[Expression]
) -> list[tuple[str, list[Expression]]]:
    if group is None:
        return []
    same = [ex.control_group(group.level, R), ex.compare(R, ex.host64(group.number))]
    return [("local", [*same, *accept])]


def _not_the_daemon(level: int | None) -> list[Expression]:
    """Match a packet whose socket here is not of the daemon with the port in register R; empty without a *level*.

    A packet without a socket does not match, nor does one of a program above that level, which `_outside` finds.
    """
    if level is None:
        return []
    fields = {"set": LISTENERS, "set_id": 4, "sreg": R, "flags": {"NFT_LOOKUP_F_INV"}}
    return [ex.control_group(level, R + 1), genex("lookup", fields)]


def _outside(top: int | None) -> list[Expression]:
    """Match a packet whose socket on this host is of a program outside of the control group *top* of level 1.

    Such as an ordinary service of system.slice, which is above the level of daemons.
    """
    if top is None:
        return []
    return [ex.control_group(1, R), ex.compare(R, ex.host64(top), ex.NOT_EQUAL)]


def _between(key: Meta, first: int, last: int) -> list[Expression]:
    # Numbers are compared as bytes, so the most significant one has to come first.
    return [
        ex.meta(key, R),
        ex.big_endian(R),
        ex.compare(R, first.to_bytes(4, "big"), _AT_LEAST),
        ex.compare(R, last.to_bytes(4, "big"), _AT_MOST),
    ]


def rules_per_chain(layout: FenceLayout) -> dict[str, int]:
    """Return how many rules each chain has; in the kernel, another number shows that the table was changed."""
    counts: dict[str, int] = {}
    for chain, _ in rules(layout):
        counts[chain] = counts.get(chain, 0) + 1
    return counts


def _tcp_to(first: int, last: int) -> list[Expression]:
    return _tcp(2, first, last)


def _port(offset: int) -> list[Expression]:
    """Load the source port, *offset* 0, or the destination port, 2."""
    return [ex.load(TRANSPORT, offset, 2, R)]


def _tcp(offset: int, first: int, last: int) -> list[Expression]:
    return [
        ex.meta(Meta.NFT_META_L4PROTO, R),
        ex.compare(R, _TCP),
        *_port(offset),
        ex.compare(R, first.to_bytes(2, "big"), _AT_LEAST),
        ex.compare(R, last.to_bytes(2, "big"), _AT_MOST),
    ]


def _device(key: Meta, name: bytes) -> list[Expression]:
    return [ex.meta(key, R), ex.compare(R, name.ljust(16, b"\0"))]


def _is_in(name: str, set_id: int) -> Expression:
    expression: Expression = genex("lookup", {"set": name, "set_id": set_id, "sreg": R})
    return expression


def _over(name: str, set_id: int, count: int) -> Expression:
    """Match a connection that exceeds *count* connections with the key in the registers."""
    limit: Expression = genex("connlimit", {"count": count, "flags": {"NFT_LIMIT_F_INV"}})
    fields = {"set_name": name, "set_id": set_id, "op": 0, "sreg_key": R, "expr": limit}
    expression: Expression = genex("dynset", fields)
    return expression


def _goto(chain: str) -> Expression:
    code = {"attrs": [("NFTA_VERDICT_CODE", _GOTO), ("NFTA_VERDICT_CHAIN", chain)]}
    data = {"attrs": [("NFTA_DATA_VERDICT", code)]}
    expression: Expression = genex("immediate", {"dreg": 0, "data": data})
    return expression


def _add_chain(name: str) -> Message:
    """Return the message that adds a chain without a hook, to which other chains go."""
    fields = [("NFTA_CHAIN_TABLE", TABLE), ("NFTA_CHAIN_NAME", name)]
    return ex.encode(nft.nft_chain_msg, nft.NFT_MSG_NEWCHAIN, INET, fields, NLM_F_CREATE, name)
