# SPDX-License-Identifier: Apache-2.0
"""RODVR's two tables, as data.

    table netdev rodvr   a chain on every bound tap, and one on rodvr0 for replies
    table ip rodvr       translation, refusal and masquerading of what comes out of rodvr1, and the
                         same for what the host's own programs send to the local prefix

A packet from a VM to a masked address enters at the tap's chain, before any bridge or switch sees it,
gets as its source the identity of the VM's address (that of the port's first one is part of the chain, map
`sources` has those of further ones) and leaves through rodvr0. It comes out of rodvr1 as an ordinary packet
to be routed: map `real` gives its destination, and the GPU NIC masquerades it. The reply is translated back
to the identity, is routed into rodvr1 and comes out of rodvr0, where map `back` gives tap, MAC and IP of the
VM. Between the two, the source MAC address contains the identity of the port's first address, by which
connections are limited for each port, however many addresses that has. No marks, zones or policy rules are
used, so those of other programs cannot interfere.

Programs of the host have no tap. Their masked addresses are in the local prefix, which is routed to the
GPU NIC, so that connections get its address; before they are sent, map `local` gives their destination by
the id of the user who opened the socket. Other connections to the local prefix are refused.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from pyroute2.netlink.nfnetlink import nftsocket as nft

from gsaas.netlink import expressions as ex
from gsaas.netlink.expressions import LINK, NETWORK, TRANSPORT, Expression, R
from gsaas.netlink.pyroute2_releases import Meta
from gsaas.netlink.wire import Message
from gsaas.objects.binding import INVALID_UID
from gsaas.rodvr.config import ConnectionLimits

NETDEV, IPV4 = nft.NFPROTO_NETDEV, nft.NFPROTO_IPV4
TABLE = "rodvr"
OUTER, INNER = "rodvr0", "rodvr1"
OUTER_MAC, INNER_MAC = "02:52:4f:44:56:00", "02:52:4f:44:56:01"
TAP_PRIORITY = -500
"""Before everything else on the tap, Neutron's own ingress chains included."""
VERSION = 8
"""Part of the table comment: to be increased with every change of the rules, so that an upgraded endpoint
rebuilds the tables."""

_FIRST_OF_NAT = -199
"""The least priority that the kernel admits for nat chains; those of other programs usually have -100.

The first nat chain that translates a connection is the last one that sees it.
"""
_INGRESS, _PREROUTING, _INPUT, _FORWARD, _OUTPUT, _POSTROUTING = 0, 0, 1, 2, 3, 4
_ETHERTYPE_IPV4, _ETHERTYPE_ARP, _TCP = b"\x08\x00", b"\x08\x06", b"\x06"
_MORE_FRAGMENTS_OR_OFFSET = b"\x3f\xff"
_CT_STATE, _CT_DIRECTION, _CT_STATUS = 0, 1, 2
_STATE_INVALID, _STATE_NEW = 1, 8
_STATUS_CONFIRMED, _STATUS_DNAT = 0x8, 0x20
_JUST_TRANSLATED = b"RODV"
"""The priority of a connection's first packet between `translate`, which found its address in `real`, and `guard`.

A translation by a rule of another program looks the same to connection tracking, so `guard` has to be told. Nothing
reads a packet's priority between these two chains, and `guard` sets it to 0 again, as it came.
"""
_COUNTED_IDENTITIES = 65535
_COUNTED_DAEMONS = 1 << 20
"""Upper bound of the (identity, daemon) pairs whose connections are counted: far beyond the mappings of a host."""
_CONNECTIONS, _CONNECTIONS_TO_DAEMON = "connections", "connections-to-daemon"
_CONNECTIONS_ID, _CONNECTIONS_TO_DAEMON_ID = 5, 6
SOURCES, STRANGERS = "sources", "strangers"
_STRANGERS_ID = 8
_PORT_MAC = bytes.fromhex("0252")
"""Begins the source MAC addresses of VM's packets in rodvr1; the identity of the port's first address follows."""
_STRANGERS_KEPT = 600
"""Seconds for which `strangers` keeps the first address that a VM sent from and must not."""
_COUNTED_TAPS = 65535


@dataclass(frozen=True)
class RulesetConfig:
    """Everything that the tables depend on, apart from the bindings.

    Tables with the comment of a configuration have its rules.
    """

    masked_prefix: ipaddress.IPv4Network
    identity_network: ipaddress.IPv4Network
    local_prefix: ipaddress.IPv4Network
    gpu_device: str
    outer_index: int
    """Interface index of rodvr0: tap chains name it by number."""
    guard_gpu_device: bool
    """Whether RODVR enabled forwarding on the GPU NIC; then only RODVR's packets may be forwarded from it."""
    limits: ConnectionLimits

    @property
    def comment(self) -> str:
        """The comment of tables with this configuration."""
        guard = "guarded" if self.guard_gpu_device else "open"
        return (
            f"rodvr {VERSION} {self.masked_prefix} {self.identity_network} {self.local_prefix} "
            f"{self.limits} {self.gpu_device} {self.outer_index} {guard}"
        )


def was_guarded(comment: str, gpu_device: str) -> bool:
    """Return whether the table with this comment guarded *gpu_device*: RODVR had enabled its forwarding."""
    words = comment.split(" ")
    return words[:1] == ["rodvr"] and words[-1] == "guarded" and gpu_device in words[5:-2]


@dataclass(frozen=True)
class ChainRule:
    """A rule and the base chain that it belongs to."""

    chain: str
    expressions: list[Expression]


def add_tables(config: RulesetConfig, flags: int) -> list[Message]:
    """Return the messages that add the tables, empty; *flags* are table flags."""
    return [ex.add_table(family, TABLE, flags, config.comment) for family in (NETDEV, IPV4)]


def base(config: RulesetConfig) -> list[Message]:
    """Return the messages that add the sets, maps, base chains and their rules."""
    back = (nft.DATA_TYPE_IFINDEX, nft.DATA_TYPE_ETHERADDR, nft.DATA_TYPE_IPADDR)
    requested = (nft.DATA_TYPE_IPADDR, nft.DATA_TYPE_IPADDR, nft.DATA_TYPE_INET_SERVICE)
    real = (nft.DATA_TYPE_IPADDR, nft.DATA_TYPE_INET_SERVICE)
    identity = (nft.DATA_TYPE_IPADDR,)
    tap_source = (nft.DATA_TYPE_IFINDEX, nft.DATA_TYPE_IPADDR)
    user_requested = (nft.DATA_TYPE_UID, nft.DATA_TYPE_IPADDR, nft.DATA_TYPE_INET_SERVICE)
    return [
        ex.add_set(NETDEV, TABLE, "back", 1, identity, 4, data=back, data_length=16, counted=True),
        ex.add_set(NETDEV, TABLE, SOURCES, 7, tap_source, 8, data=identity, data_length=4),
        ex.add_set(
            *(NETDEV, TABLE, STRANGERS, _STRANGERS_ID, (nft.DATA_TYPE_IFINDEX,), 4),
            data=identity,
            data_length=4,
            counts=_COUNTED_TAPS,
            timeout=_STRANGERS_KEPT,
        ),
        ex.add_chain(NETDEV, TABLE, "back", _INGRESS, TAP_PRIORITY, device=OUTER),
        *[ex.add_rule(NETDEV, TABLE, r.chain, r.expressions) for r in netdev_rules(config)],
        ex.add_set(IPV4, TABLE, "real", 1, requested, 12, data=real, data_length=8),
        ex.add_set(IPV4, TABLE, "unmapped", 2, identity, 4, counts=_COUNTED_IDENTITIES),
        ex.add_set(IPV4, TABLE, "local", 3, user_requested, 12, data=real, data_length=8),
        ex.add_set(IPV4, TABLE, "unmapped-local", 4, identity, 4, counts=_COUNTED_IDENTITIES),
        ex.add_set(
            IPV4, TABLE, _CONNECTIONS, _CONNECTIONS_ID, identity, 4, counts=_COUNTED_IDENTITIES
        ),
        ex.add_set(
            *(IPV4, TABLE, _CONNECTIONS_TO_DAEMON, _CONNECTIONS_TO_DAEMON_ID, requested, 12),
            counts=_COUNTED_DAEMONS,
        ),
        ex.add_chain(IPV4, TABLE, "stale", _PREROUTING, -150),
        ex.add_chain(IPV4, TABLE, "translate", _PREROUTING, _FIRST_OF_NAT, type="nat"),
        ex.add_chain(IPV4, TABLE, "guard", _PREROUTING, -90),
        ex.add_chain(IPV4, TABLE, "forward", _FORWARD, -10),
        ex.add_chain(IPV4, TABLE, "input", _INPUT, -10),
        ex.add_chain(IPV4, TABLE, "output", _OUTPUT, -300),
        ex.add_chain(IPV4, TABLE, "local-stale", _OUTPUT, -150),
        ex.add_chain(IPV4, TABLE, "local", _OUTPUT, -100, type="nat"),
        ex.add_chain(IPV4, TABLE, "local-guard", _OUTPUT, -90),
        ex.add_chain(IPV4, TABLE, "masq", _POSTROUTING, 100, type="nat"),
        *[ex.add_rule(IPV4, TABLE, r.chain, r.expressions) for r in ipv4_rules(config)],
    ]


def netdev_rules(config: RulesetConfig) -> list[ChainRule]:
    """Return the rules of the base chain in the netdev table."""
    return [
        # One lookup fills four registers: tap index, VM MAC (two registers) and VM address. It also counts what each VM
        # receives, which costs no further lookup.
        ChainRule(
            "back",
            [
                *_in_network(12, config.masked_prefix),
                ex.load(NETWORK, 16, 4, R),
                ex.lookup("back", R, R + 4),
                ex.store(LINK, 0, 6, R + 5),
                ex.store(NETWORK, 16, 4, R + 7, checksum=10),
                ex.counter(),
                ex.forward_to(R + 4),
            ],
        ),
        ChainRule("back", _drop()),
    ]


def ipv4_rules(config: RulesetConfig) -> list[ChainRule]:
    """Return the rules of the base chains in the ip table, in their order within each chain."""
    from_vm, to_vm = _device("iif", INNER), _device("oif", INNER)
    from_gpu, to_gpu = _device("iif", config.gpu_device), _device("oif", config.gpu_device)
    tcp = [ex.meta(Meta.NFT_META_L4PROTO, R), ex.compare(R, _TCP)]
    translated = _conntrack_has(_CT_STATUS, _STATUS_DNAT)
    is_reply = [ex.conntrack(_CT_DIRECTION, R), ex.compare(R, b"\x01")]
    opens = _opens()
    does_not_open = [*_tcp_flags(0x17), ex.compare(R, b"\x02", ex.NOT_EQUAL)]
    is_syn = [*_tcp_flags(0x02), ex.compare(R, b"\x00", ex.NOT_EQUAL)]
    accept = [ex.verdict(ex.ACCEPT)]
    counted_accept = [ex.counter(), *accept]
    source_identity = [ex.load(NETWORK, 12, 4, R)]
    # Past `guard`, every translated packet from rodvr1 is one that RODVR translated: `guard` admits the first packet
    # of a connection only if `translate` marked it, and connection tracking confirms no connection before that.
    admitted = [
        ex.conntrack(_CT_STATUS, R),
        ex.mask(R, ex.host32(_STATUS_CONFIRMED | _STATUS_DNAT)),
        ex.compare(R, ex.host32(_STATUS_CONFIRMED | _STATUS_DNAT)),
    ]
    mark = [ex.immediate(R + 2, _JUST_TRANSLATED), ex.set_meta(Meta.NFT_META_PRIORITY, R + 2)]
    marked = [ex.meta(Meta.NFT_META_PRIORITY, R), ex.compare(R, _JUST_TRANSLATED)]
    unmark = [ex.immediate(R, bytes(4)), ex.set_meta(Meta.NFT_META_PRIORITY, R)]
    to_local = _in_network(16, config.local_prefix)[2:]  # this table sees IPv4 only
    translate_local = [
        *[ex.load(NETWORK, 16, 4, R + 1), ex.load(TRANSPORT, 2, 2, R + 2)],
        *[ex.lookup("local", R, R), ex.translate_destination(R, R + 1)],
    ]
    rules = [
        # A packet of a connection that is not tracked any more (its mapping moved, or the VM migrated to
        # this host): reset it at once, or the client waits for a time-out.
        ChainRule(
            "stale",
            [*from_vm, *tcp, *_conntrack_has(_CT_STATE, _STATE_NEW), *does_not_open]
            + [ex.counter(), ex.reset_connection()],
        ),
        ChainRule(
            "translate",
            [*from_vm, *tcp, *source_identity, ex.load(NETWORK, 16, 4, R + 1)]
            + [ex.load(TRANSPORT, 2, 2, R + 2), ex.lookup("real", R, R)]
            + [*mark, ex.translate_destination(R, R + 1)],
        ),
        ChainRule("guard", [*from_vm, *admitted, *accept]),
        # No reset here: it could end a live connection because of one packet out of its window.
        ChainRule("guard", [*from_vm, *_conntrack_has(_CT_STATE, _STATE_INVALID), *_drop()]),
        *[
            ChainRule("guard", [*from_vm, *marked, *beyond, ex.counter(), ex.reset_connection()])
            for beyond in _beyond(config.limits)
        ],
        ChainRule("guard", [*from_vm, *marked, *unmark, *accept]),
        ChainRule(
            "guard",
            [*from_vm, *tcp, *opens, *source_identity, ex.count_in("unmapped", 2, R)]
            + [ex.counter(), ex.reset_connection()],
        ),
        ChainRule("guard", [*from_vm, *_drop()]),
        ChainRule("forward", [*from_vm, *to_gpu, *translated, *tcp, *is_syn, *ex.clamp_mss(R)]),
        ChainRule("forward", [*to_vm, *from_gpu, *translated, *tcp, *is_syn, *ex.clamp_mss(R)]),
        ChainRule("forward", [*from_vm, *to_gpu, *translated, *counted_accept]),
        ChainRule("forward", [*to_vm, *from_gpu, *translated, *is_reply, *counted_accept]),
        ChainRule("forward", [*from_vm, *_drop()]),
        ChainRule("forward", [*to_vm, *_drop()]),
        # The local prefix is for programs of this host, not for what it forwards.
        ChainRule("forward", [*to_local, *_drop()]),
        # Packets to a daemon on this very host are not forwarded.
        ChainRule("input", [*from_vm, *translated, *accept]),
        ChainRule("input", [*from_vm, *_drop()]),
        # Resets that this host itself sends must not be tracked as the beginning of a connection.
        ChainRule("output", [*to_vm, *_in_network(12, config.masked_prefix), ex.untracked()]),
        ChainRule("output", [*_in_network(12, config.local_prefix)[2:], ex.untracked()]),
        ChainRule(
            "local-stale",
            [*to_local, *tcp, *_conntrack_has(_CT_STATE, _STATE_NEW), *does_not_open]
            + [ex.counter(), ex.reset_connection()],
        ),
        ChainRule("local", [*to_local, *tcp, ex.meta(Meta.NFT_META_SKUID, R), *translate_local]),
        ChainRule(
            "local", [*to_local, *tcp, ex.immediate(R, ex.host32(INVALID_UID)), *translate_local]
        ),
        ChainRule("local-guard", [*to_local, *_conntrack_has(_CT_STATE, _STATE_INVALID), *_drop()]),
        ChainRule(
            "local-guard",
            [*to_local, *tcp, *opens, ex.load(NETWORK, 16, 4, R)]
            + [ex.count_in("unmapped-local", 4, R), ex.counter(), ex.reset_connection()],
        ),
        ChainRule("local-guard", [*to_local, *_drop()]),
        ChainRule(
            "masq",
            [*source_identity, ex.mask(R, config.identity_network.netmask.packed)]
            + [ex.compare(R, config.identity_network.network_address.packed)]
            + [*to_gpu, ex.masquerade()],
        ),
    ]
    if config.guard_gpu_device:
        rules.append(ChainRule("forward", [*from_gpu, *_drop()]))
    return rules


def rules_per_chain(config: RulesetConfig) -> dict[tuple[int, str], int]:
    """Return (family, base chain) -> how many rules it has; if it has another number, another program changed it."""
    counts: dict[tuple[int, str], int] = {}
    for family, rules in ((NETDEV, netdev_rules(config)), (IPV4, ipv4_rules(config))):
        for rule in rules:
            counts[family, rule.chain] = counts.get((family, rule.chain), 0) + 1
    return counts


def tap_rules(config: RulesetConfig, ip: bytes, identity: bytes) -> list[list[Expression]]:
    """Return the rules of one tap's chain: answer ARP, limit new connections, forward what is right, drop what is not.

    *ip* is the port's first fixed address, *identity* its identity, 4 bytes each.
    """
    inner = bytes.fromhex(INNER_MAC.replace(":", ""))
    prefix = config.masked_prefix
    answer_arp = [
        ex.meta(Meta.NFT_META_PROTOCOL, R),
        ex.compare(R, _ETHERTYPE_ARP),
        ex.load(NETWORK, 0, 8, R),
        ex.compare(R, bytes.fromhex("0001080006040001")),  # Ethernet, IPv4, request
        ex.load(NETWORK, 24, 4, R + 4),
        *_address_in(24, prefix),
        ex.load(NETWORK, 8, 10, R),
        ex.store(NETWORK, 18, 10, R),  # target := sender
        ex.store(NETWORK, 14, 4, R + 4),  # sender := the requested address
        ex.load(LINK, 6, 6, R),
        ex.store(LINK, 0, 6, R),
        ex.immediate(R, inner),
        ex.store(NETWORK, 8, 6, R),
        ex.store(LINK, 6, 6, R),
        ex.immediate(R, b"\x00\x02"),
        ex.store(NETWORK, 6, 2, R),  # reply
        ex.meta(Meta.NFT_META_IIF, R),
        ex.counter(),
        ex.forward_to(R),
    ]
    limit = [
        *_in_network(16, prefix),
        ex.load(NETWORK, 9, 1, R),
        ex.compare(R, _TCP),
        *_opens(),
        # Dropped and not refused: TCP tries again after a second, and a burst is only spread.
        ex.over_rate(config.limits.new_per_second, config.limits.burst),
        *_drop(),
    ]
    is_tcp = [ex.load(NETWORK, 9, 1, R), ex.compare(R, _TCP)]
    fragment_bits = [ex.load(NETWORK, 6, 2, R), ex.mask(R, _MORE_FRAGMENTS_OR_OFFSET)]
    # No fragments, which connection tracking would reassemble: the memory for that is the whole host's.
    is_whole_tcp = [*is_tcp, *fragment_bits, ex.compare(R, bytes(2))]
    send = [
        ex.store(NETWORK, 12, 4, R + 4, checksum=10),
        # rodvr1 takes only frames addressed to it.
        ex.immediate(R, inner + _PORT_MAC + identity),
        ex.store(LINK, 0, 12, R),
        ex.counter(),
        ex.immediate(R, ex.host32(config.outer_index)),
        ex.forward_to(R),
    ]
    source = ex.load(NETWORK, 12, 4, R + 1)
    tap_source = [ex.meta(Meta.NFT_META_IIF, R), source]
    is_first_address = [source, ex.compare(R + 1, ip), ex.immediate(R + 4, identity)]
    is_other_address = [*tap_source, ex.lookup(SOURCES, R, R + 4)]
    to_masked = _in_network(16, prefix)
    is_not_tcp = [ex.load(NETWORK, 9, 1, R), ex.compare(R, _TCP, ex.NOT_EQUAL)]
    is_fragment = [*fragment_bits, ex.compare(R, bytes(2), ex.NOT_EQUAL)]
    remember = ex.remember_in(STRANGERS, _STRANGERS_ID, R, R + 1)
    rules = [
        answer_arp,
        limit,
        [*to_masked, *is_first_address, *is_whole_tcp, *send],
        [*to_masked, *is_other_address, *is_whole_tcp, *send],
        [*to_masked, *is_not_tcp, *_drop()],
        [*to_masked, *is_fragment, *_drop()],
        # A rule of its own, which ends when the set is full.
        [*to_masked, *tap_source, remember],
        [*to_masked, *_drop()],
    ]
    if not config.limits.new_per_second:
        rules.remove(limit)
    return rules


TAP_COUNTERS = {"sent": (-6, -5), "not_tcp": (-4,), "fragments": (-3,), "foreign": (-1,)}
"""What the rules of a tap's chain count, by their places from its end."""


def rules_per_tap(config: RulesetConfig) -> int:
    """Return how many rules a tap's chain has; if it has another number, another program changed it."""
    return len(tap_rules(config, bytes(4), bytes(4)))


def _beyond(limits: ConnectionLimits) -> list[list[Expression]]:
    """Return matches of a first packet, already translated, whose connection would be beyond one of *limits*."""
    port = ex.load(LINK, 6 + len(_PORT_MAC), 4, R)
    matches = []
    if limits.per_daemon:
        daemon = [port, ex.load(NETWORK, 16, 4, R + 1), ex.load(TRANSPORT, 2, 2, R + 2)]
        name, set_id = _CONNECTIONS_TO_DAEMON, _CONNECTIONS_TO_DAEMON_ID
        matches.append([*daemon, ex.over_connections(name, set_id, R, limits.per_daemon)])
    if limits.per_vm:
        name, set_id = _CONNECTIONS, _CONNECTIONS_ID
        matches.append([port, ex.over_connections(name, set_id, R, limits.per_vm)])
    return matches


def _in_network(offset: int, network: ipaddress.IPv4Network) -> list[Expression]:
    """Match IPv4 packets whose address at *offset* of the header lies in *network*."""
    return [
        ex.meta(Meta.NFT_META_PROTOCOL, R),
        ex.compare(R, _ETHERTYPE_IPV4),
        *_address_in(offset, network),
    ]


def _address_in(offset: int, network: ipaddress.IPv4Network) -> list[Expression]:
    """Match packets whose bytes at *offset* of the network header are an address in *network*."""
    address, bits = network.network_address.packed, network.prefixlen
    if bits and bits % 8 == 0:
        # Without a mask, which is the longest expression of a tap's chain: what is written for every VM.
        return [ex.load(NETWORK, offset, bits // 8, R), ex.compare(R, address[: bits // 8])]
    return [
        ex.load(NETWORK, offset, 4, R),
        ex.mask(R, network.netmask.packed),
        ex.compare(R, address),
    ]


def _device(side: str, name: str) -> list[Expression]:
    key = {"iif": Meta.NFT_META_IIFNAME, "oif": Meta.NFT_META_OIFNAME}[side]
    return [ex.meta(key, R), ex.compare(R, name.encode().ljust(16, b"\0"))]


def _conntrack_has(key: int, bit: int) -> list[Expression]:
    is_set = ex.compare(R, bytes(4), ex.NOT_EQUAL)
    return [ex.conntrack(key, R), ex.mask(R, ex.host32(bit)), is_set]


def _opens() -> list[Expression]:
    """Match a SYN without FIN, RST and ACK."""
    return [*_tcp_flags(0x17), ex.compare(R, b"\x02")]


def _tcp_flags(bits: int) -> list[Expression]:
    return [ex.load(TRANSPORT, 13, 1, R), ex.mask(R, bytes([bits]))]


def _drop() -> list[Expression]:
    return [ex.counter(), ex.verdict(ex.DROP)]
