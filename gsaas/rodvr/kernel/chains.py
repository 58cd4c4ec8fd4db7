# SPDX-License-Identifier: Apache-2.0
"""Reads the rules of other programs on the hooks that RODVR's packets pass, for `gsaas.rodvr.path` to evaluate."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from pyroute2.netlink.nfnetlink import nftsocket as nft

from gsaas.netlink import wire
from gsaas.netlink.expressions import SUBSYSTEM
from gsaas.netlink.transport import NetlinkRefused, Nfnetlink
from gsaas.netlink.wire import Message
from gsaas.rodvr import filters
from gsaas.rodvr.filters import Decide, Element, Expression, Opaque, Rule, Rules, Value, Verdict
from gsaas.rodvr.kernel.attributes import (
    CHAIN_HOOK,
    CHAIN_NAME,
    CHAIN_POLICY,
    CHAIN_TABLE,
    CHAIN_TYPE,
    ELEMENT_DATA,
    ELEMENT_KEY,
    HOOK_DEVICE,
    HOOK_NUMBER,
    HOOK_PRIORITY,
    LIST_ELEMENTS,
    LIST_SET,
    LIST_TABLE,
    RULE_CHAIN,
    RULE_EXPRESSIONS,
    RULE_TABLE,
)
from gsaas.rodvr.kernel.extensions import match_of, target_of
from gsaas.rodvr.kernel.ruleset import TABLE
from gsaas.rodvr.path import BaseChain

_HOOK_DEVICES = 4
_RULE_HANDLE = 3
_FAMILIES = {"ip": nft.NFPROTO_IPV4, "inet": nft.NFPROTO_INET, "netdev": nft.NFPROTO_NETDEV}
_IP_HOOKS = {0: "prerouting", 2: "forward", 4: "postrouting"}
_HOOKS = {
    "ip": _IP_HOOKS,
    "inet": {**_IP_HOOKS, 5: "ingress"},
    "netdev": {0: "ingress", 1: "egress"},
}
_VERDICTS = {0: Verdict.DROP, 1: Verdict.ACCEPT}
_VERDICTS |= {-3: Verdict.JUMP, -4: Verdict.GOTO, -5: Verdict.RETURN}
_META = {
    1: "protocol",
    3: "mark",
    4: "iif",
    5: "oif",
    6: "iifname",
    7: "oifname",
    8: "iiftype",
    9: "oiftype",
    10: "skuid",
    11: "skgid",
    15: "nfproto",
    16: "l4proto",
    19: "pkttype",
}
_NAMES = (6, 7)
_CT = {
    0: "state",
    1: "direction",
    2: "status",
    3: "mark",
    8: "original saddr",
    19: "original saddr",
}
"""Keys of `ct`; the addresses are those of the direction that is asked for."""
_HEADERS = {1: "network", 2: "transport"}
_ZONE = 17
_FIB_ADDRESS, _FIB_SOURCE, _FIB_PRESENT = 2, 1, 32
_FIB_TYPE, _FIB_OIF = 3, 1
_LIMIT_OVER = 1
_IGNORED = frozenset({"counter", "log", "last", "comment", "dup"})
_CONDITIONAL_OBJECTS = frozenset({2, 4, 5})
"""Types of objects that are conditions: quota, limit, connection limit."""
_DELETES, _INVERTED = 2, 1
_ELEMENT_FLAGS, _CATCH_ALL = 3, 2
_TERMINAL = frozenset({"nat", "masq", "redir", "queue", "fwd", "tproxy", "synproxy"})
"""They let the packet go on, or take it to where it is not to be followed."""
_TARGETS = {
    "fib": 1, "rt": 1, "socket": 2, "hash": 2, "numgen": 1, "exthdr": 1, "osf": 1, "tunnel": 2, "xfrm": 1,
}  # fmt: skip
"""Expressions that load what is not known, and the number of the attribute that names their register."""


def read(netlink: Nfnetlink) -> list[tuple[BaseChain, Rules]]:
    """Return base chains of other tables on the hooks of IPv4 packets, each with the rules of its table.

    Raises `NetlinkRefused` if the kernel refuses to list chains or rules.
    """
    found = []
    tables: dict[tuple[str, str], Rules] = {}
    for family, number in _FAMILIES.items():
        kind = SUBSYSTEM | nft.NFT_MSG_GETCHAIN
        for body in netlink.dump(Message(kind, number, b"", 0, "read chains")):
            chain = _base_chain(family, wire.by_kind(body))
            if chain is None or chain.table == TABLE:
                continue
            rules = tables.setdefault(
                (family, chain.table),
                Rules(
                    _rules_of(netlink, number, chain.table), _finder(netlink, number, chain.table)
                ),
            )
            found.append((chain, rules))
    return found


def _base_chain(family: str, fields: dict[int, bytes]) -> BaseChain | None:
    """Return the chain; None if it is on no hook that RODVR's packets pass."""
    hook = wire.by_kind(fields.get(CHAIN_HOOK, b""))
    if HOOK_NUMBER not in hook:
        return None
    name = _HOOKS[family].get(int.from_bytes(hook[HOOK_NUMBER], "big"))
    if name is None:
        return None
    devices = [wire.string(hook[HOOK_DEVICE])] if HOOK_DEVICE in hook else []
    devices += [wire.string(each) for _, each in wire.attributes(hook.get(_HOOK_DEVICES, b""))]
    return BaseChain(
        family,
        wire.string(fields[CHAIN_TABLE]),
        wire.string(fields[CHAIN_NAME]),
        _VERDICTS[int.from_bytes(fields.get(CHAIN_POLICY, b"\1"), "big")],
        name,
        int.from_bytes(hook[HOOK_PRIORITY], "big", signed=True),
        tuple(dict.fromkeys(devices)),
        is_nat=wire.string(fields.get(CHAIN_TYPE)) == "nat",
    )


def _rules_of(netlink: Nfnetlink, family: int, table: str) -> Callable[[str], Sequence[Rule]]:
    @cache
    def read_rules(chain: str) -> Sequence[Rule]:
        body = wire.text(RULE_TABLE, table) + wire.text(RULE_CHAIN, chain)
        request = Message(SUBSYSTEM | nft.NFT_MSG_GETRULE, family, body, 0, f"read {chain}")
        fields = [wire.by_kind(rule) for rule in _dump(netlink, request)]
        return tuple(
            Rule(
                tuple(_expressions(rule.get(RULE_EXPRESSIONS, b""))),
                int.from_bytes(rule.get(_RULE_HANDLE, b""), "big"),
            )
            for rule in fields
            if wire.string(rule.get(RULE_CHAIN)) == chain
            and wire.string(rule.get(RULE_TABLE)) == table
        )

    return read_rules


def _dump(netlink: Nfnetlink, request: Message) -> list[bytes]:
    try:
        return netlink.dump(request)
    except NetlinkRefused as refusal:
        if refusal.errno != errno.ENOENT:
            raise
        return []  # deleted since it was listed


def _finder(
    netlink: Nfnetlink, family: int, table: str
) -> Callable[[str, Value], Element | bool | None]:
    """Return a function that asks the kernel for one element of a set: it knows intervals, and a set may be large."""

    @cache
    def key_length(name: str) -> int:
        body = wire.text(1, table) + wire.text(2, name)
        request = Message(SUBSYSTEM | nft.NFT_MSG_GETSET, family, body, 0, f"read set {name}")
        for answer in netlink.request(request):
            return int.from_bytes(wire.by_kind(answer).get(5, b""), "big")
        return 0

    @cache
    def find_known(name: str, key: bytes) -> Element | bool | None:
        found = ask(name, wire.nested(ELEMENT_KEY, wire.attribute(1, key)))
        # The kernel does not take the element for all other keys into account; old kernels have no such elements.
        return found if found is not False else find_catch_all(name) or False

    @cache
    def find_catch_all(name: str) -> Element | bool | None:
        return ask(name, wire.be32(_ELEMENT_FLAGS, _CATCH_ALL))

    def ask(name: str, wanted: bytes) -> Element | bool | None:
        body = (
            wire.text(LIST_TABLE, table)
            + wire.text(LIST_SET, name)
            + wire.attribute(LIST_ELEMENTS | wire.NESTED, wire.nested(1, wanted))
        )
        kind = SUBSYSTEM | nft.NFT_MSG_GETSETELEM
        try:
            answers = netlink.request(Message(kind, family, body, 0, f"look up in {name}"))
        except NetlinkRefused as refusal:
            return False if refusal.errno == errno.ENOENT else None
        for answer in answers:
            for _, found in wire.attributes(wire.by_kind(answer).get(LIST_ELEMENTS, b"")):
                return _element(wire.by_kind(found))
        return False

    def find(name: str, key: Value) -> Element | bool | None:
        try:
            length = key_length(name)
        except NetlinkRefused:
            return None
        asked = key.part(0, length)
        return find_known(name, asked.data) if length and asked.is_known else None

    return find


def _element(fields: dict[int, bytes]) -> Element:
    data = wire.by_kind(fields.get(ELEMENT_DATA, b""))
    if 2 in data:
        return Element(verdict=_decision(wire.by_kind(data[2])))
    return Element(data.get(1, b""))


def _decision(verdict: dict[int, bytes]) -> Decide | None:
    code = int.from_bytes(verdict.get(1, b""), "big", signed=True)
    chosen = _VERDICTS.get(code)
    return None if chosen is None else Decide(chosen, wire.string(verdict.get(2)))


def _expressions(encoded: bytes) -> Iterator[Expression]:
    for _, expression in wire.attributes(encoded):
        parts = wire.by_kind(expression)
        yield from _expression(wire.string(parts.get(1)), wire.by_kind(parts.get(2, b"")))


def _expression(name: str, fields: dict[int, bytes]) -> Iterator[Expression]:
    def number(kind: int) -> int:
        return int.from_bytes(fields.get(kind, b""), "big")

    def register(kind: int) -> int:
        """Return the place of a register in bytes: the first four have 16 bytes, the others 4 bytes."""
        found = number(kind)
        return (found - 1) * 16 if found < 8 else (found - 8) * 4

    def value(kind: int) -> bytes:
        return wire.by_kind(fields[kind]).get(1, b"")

    match name:
        case _ if name in _IGNORED:
            pass
        case "immediate" if number(1) == 0:
            decision = _decision(wire.by_kind(wire.by_kind(fields[2]).get(2, b"")))
            if decision is not None:
                yield decision
        case "immediate":
            yield filters.Constant(register(1), value(2))
        case "payload" if 1 in fields:
            header = _HEADERS.get(number(2), "other header")
            yield filters.Load(register(1), header, number(3), number(4))
        case "meta" if 1 in fields:
            key = _META.get(number(2), "other")
            yield filters.Load(register(1), f"meta {key}", 0, 16 if number(2) in _NAMES else 4)
        case "ct" if 1 in fields:
            key = _CT.get(number(2), "other")
            if key == "original saddr" and number(3) != 0:
                key = "other"
            yield filters.Load(register(1), f"ct {key}")
        case "ct" if number(2) == _ZONE:
            yield filters.SetZone(register(4))
        case "payload" | "meta" | "ct" | "exthdr" if 1 not in fields:
            pass  # they change the packet, in ways that do not matter here
        case "fib" if number(2) == _FIB_TYPE and number(3) & (_FIB_ADDRESS | _FIB_SOURCE):
            side = "saddr" if number(3) & _FIB_SOURCE else "daddr"
            yield filters.Load(register(1), f"fib {side} type")
        case "fib" if (
            number(2) == _FIB_OIF and number(3) & _FIB_PRESENT and number(3) & _FIB_SOURCE
        ):
            yield filters.Load(register(1), "fib saddr present")
        case "cmp":
            # Less and greater are compared in network byte order, as bytes.
            low, high = _interval(number(2), value(3))
            yield filters.Compare(register(1), low, high, negated=number(2) == 1)
        case "range":
            yield filters.Compare(register(1), value(3), value(4), negated=number(2) == 1)
        case "bitwise" if number(6) == 0 and 4 in fields:
            yield filters.Mask(register(2), register(1), value(4), value(5))
        case "byteorder":
            yield filters.Swap(register(2), register(1), number(4), number(5))
        case "lookup":
            target = number(3) if 3 in fields else None
            yield filters.Lookup(
                wire.string(fields[1]),
                register(2),
                register(3) if target else None,
                negated=bool(number(5) & 1),
                gives_verdict=target == 0,
            )
        case "objref":
            if 1 not in fields or number(1) in _CONDITIONAL_OBJECTS:
                yield Opaque("object")
        case "dynset":
            if number(3) == _DELETES or number(9) & _INVERTED or not _only_counts(fields):
                yield Opaque("dynset")
        case "limit":
            if number(5) & _LIMIT_OVER:
                yield Opaque("limit")
        case "reject":
            yield Decide(Verdict.DROP)
        case "notrack":
            yield filters.Untrack()
        case "target":
            yield from target_of(wire.string(fields.get(1)), fields.get(3, b""))
        case "match":
            yield from match_of(wire.string(fields.get(1)), number(2), fields.get(3, b""))
        case _ if name in _TERMINAL:
            yield Decide(Verdict.ACCEPT)
        case _ if name in _TARGETS and _TARGETS[name] in fields:
            yield filters.Load(register(_TARGETS[name]), name, 0, 16)
        case _:
            yield Opaque(name)


def _only_counts(fields: dict[int, bytes]) -> bool:
    """Return whether what is done with an element that a packet adds is no condition."""
    nested = [fields[7]] if 7 in fields else []
    nested += [each for _, each in wire.attributes(fields.get(10, b""))]
    return all(wire.string(wire.by_kind(each).get(1)) in _IGNORED for each in nested)


def _interval(operator: int, value: bytes) -> tuple[bytes, bytes | None]:
    """Return the bounds of a comparison: equal, not equal, less, at most, greater, at least."""
    least, most = bytes(len(value)), b"\xff" * len(value)
    as_number = int.from_bytes(value, "big")
    match operator:
        case 2:
            return (
                (least, (as_number - 1).to_bytes(len(value), "big")) if as_number else (most, least)
            )
        case 3:
            return least, value
        case 4:
            below = as_number == int.from_bytes(most, "big")
            return (most, least) if below else ((as_number + 1).to_bytes(len(value), "big"), most)
        case 5:
            return value, most
    return value, None
