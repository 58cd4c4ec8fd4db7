# SPDX-License-Identifier: Apache-2.0
"""Reads the tables of iptables-legacy, for `gsaas.rodvr.path` to evaluate.

The structures are those of linux/netfilter_ipv4/ip_tables.h.

Only tables that are in use are read: to ask for another one would create it.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gsaas.netlink.namespace import entered
from gsaas.rodvr import filters
from gsaas.rodvr.filters import Decide, Expression, Opaque, Rule, Rules, Verdict
from gsaas.rodvr.kernel.extensions import match_of, target_of
from gsaas.rodvr.path import BaseChain

_GET_INFO, _GET_ENTRIES = 64, 65
_INFO = struct.Struct("=32sI5I5III")
_ENTRIES_AT = 40
"""Where the entries begin, behind the table's name, their size, and padding."""
_IP = struct.Struct("=4s4s4s4s16s16s16s16sHBB")
_OFFSETS, _OFFSETS_AT = struct.Struct("=HH"), 88
_MATCHES_AT = 112
"""Where the matches of an entry begin, behind its addresses, interfaces, offsets and counters."""
_EXTENSION = struct.Struct("=H29sB")
_FRAGMENT, _GOTO = 1, 2
_NOT_IN, _NOT_OUT, _NOT_SOURCE, _NOT_DESTINATION, _NOT_PROTOCOL = 0x01, 0x02, 0x08, 0x10, 0x40
_VERDICTS = {-1: Verdict.DROP, -2: Verdict.ACCEPT, -4: Verdict.ACCEPT, -5: Verdict.RETURN}
_HOOKS = {
    0: ("PREROUTING", "prerouting"),
    2: ("FORWARD", "forward"),
    4: ("POSTROUTING", "postrouting"),
}
_PRIORITIES = {"raw": -300, "mangle": -150, "filter": 0, "security": 50}
_NAT_PRIORITIES = {0: -100, 4: 100}


class _Entry(NamedTuple):
    rule: Rule
    beyond: int
    """Where the next one begins."""
    begins_chain: bool


def read(netns: str | None) -> list[tuple[BaseChain, Rules]]:
    """Return the base chains on the hooks of forwarded packets; none without the permission to list the tables.

    Raises `OSError` if the kernel refuses to tell what is in a table.
    """
    try:
        with entered(netns):
            in_use = Path("/proc/thread-self/net/ip_tables_names").read_text().split()
    except (FileNotFoundError, PermissionError):
        return []
    found: list[tuple[BaseChain, Rules]] = []
    for table in in_use:
        if table in _PRIORITIES or table == "nat":
            found += _read_table(netns, table)
    return found


def _read_table(netns: str | None, table: str) -> Iterator[tuple[BaseChain, Rules]]:
    name = table.encode().ljust(32, b"\0")
    with entered(netns), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        _, hooks, *places, _count, size = _INFO.unpack(_ask(asking, _GET_INFO, name, _INFO.size))
        request = name + struct.pack("=I", size)
        entries = _ask(asking, _GET_ENTRIES, request, _ENTRIES_AT + size)[_ENTRIES_AT:]
    begins, policies = places[:5], places[5:]
    rules = Rules(_rules_of(entries))
    for hook, (chain, at) in _HOOKS.items():
        if not hooks & 1 << hook:
            continue
        priority = _NAT_PRIORITIES.get(hook, 0) if table == "nat" else _PRIORITIES[table]
        last = _read_entry(entries, policies[hook]).rule.expressions
        policy = Verdict.DROP if last == (Decide(Verdict.DROP),) else Verdict.ACCEPT
        rules_of = _renamed(rules.rules_of, chain, str(begins[hook]))
        yield (
            BaseChain("ip", table, chain, policy, at, priority, is_nat=table == "nat", legacy=True),
            Rules(rules_of),
        )


def _renamed(
    rules_of: Callable[[str], Sequence[Rule]], chain: str, place: str
) -> Callable[[str], Sequence[Rule]]:
    """Return *rules_of* with a name for the chain at *place*, and without its last rule, which is its policy."""
    return lambda name: rules_of(place)[:-1] if name == chain else rules_of(name)


def _ask(asking: socket.socket, option: int, request: bytes, size: int) -> bytes:
    """Return the value of an option of netfilter, which needs a part of the value to be given."""
    buffer = ctypes.create_string_buffer(request, size)
    length = ctypes.c_uint32(size)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.getsockopt(asking.fileno(), socket.SOL_IP, option, buffer, ctypes.byref(length)):
        code = ctypes.get_errno()
        raise OSError(code, f"read iptables-legacy: {os.strerror(code)}")
    return buffer.raw[: length.value]


def _rules_of(entries: bytes) -> Callable[[str], Sequence[Rule]]:
    """Return a function that returns the rules of the chain that begins at a place, which is its name."""

    @cache
    def rules_of(place: str) -> Sequence[Rule]:
        offset = int(place)
        found: list[Rule] = []
        while offset < len(entries):
            entry = _read_entry(entries, offset)
            if entry.begins_chain:
                break
            found.append(entry.rule)
            if _ends_chain(entry.rule):
                break
            offset = entry.beyond
        return tuple(found)

    return rules_of


def _ends_chain(rule: Rule) -> bool:
    decides = (Verdict.ACCEPT, Verdict.DROP, Verdict.RETURN)
    return rule.expressions in [(Decide(verdict),) for verdict in decides]


def _read_entry(entries: bytes, offset: int) -> _Entry:
    target_at, length = _OFFSETS.unpack_from(entries, offset + _OFFSETS_AT)
    beyond = offset + length
    expressions = list(_conditions(entries, offset))
    goes = bool(entries[offset + _IP.size - 2] & _GOTO)
    at = offset + _MATCHES_AT
    while at < offset + target_at:
        size, name, revision = _EXTENSION.unpack_from(entries, at)
        info = entries[at + _EXTENSION.size : at + size]
        expressions += match_of(_text(name), revision, info)
        at += size
    size, name, _ = _EXTENSION.unpack_from(entries, at)
    info = entries[at + _EXTENSION.size : at + size]
    if name := _text(name):
        expressions += target_of(name, info)
        return _Entry(Rule(tuple(expressions)), beyond, name == "ERROR")
    (verdict,) = struct.unpack_from("=i", info)
    if verdict >= 0 and verdict != beyond:
        expressions.append(Decide(Verdict.GOTO if goes else Verdict.JUMP, str(verdict)))
    elif verdict in _VERDICTS:
        expressions.append(Decide(_VERDICTS[verdict]))
    return _Entry(Rule(tuple(expressions)), beyond, begins_chain=False)


def _conditions(entries: bytes, offset: int) -> Iterator[Expression]:
    """Yield what an entry says of addresses, interfaces and protocol."""
    ip = _IP.unpack_from(entries, offset)
    source, destination, source_mask, destination_mask, *names, protocol, flags, inverted = ip
    for place, address, mask, negation in (
        (12, source, source_mask, _NOT_SOURCE),
        (16, destination, destination_mask, _NOT_DESTINATION),
    ):
        if any(mask):
            yield filters.Load(0, "network", place, 4)
            yield from _masked(address, mask, negated=bool(inverted & negation))
    incoming, outgoing, incoming_mask, outgoing_mask = names
    for field, name, mask, negation in (
        ("meta iifname", incoming, incoming_mask, _NOT_IN),
        ("meta oifname", outgoing, outgoing_mask, _NOT_OUT),
    ):
        if any(mask):
            yield filters.Load(0, field, 0, 16)
            yield from _masked(name, mask, negated=bool(inverted & negation))
    if protocol:
        yield filters.Load(0, "meta l4proto")
        negated = bool(inverted & _NOT_PROTOCOL)
        yield filters.Compare(0, bytes([protocol & 0xFF]), negated=negated)
    if flags & _FRAGMENT:
        yield Opaque("fragment")


def _masked(wanted: bytes, mask: bytes, *, negated: bool) -> Iterator[Expression]:
    """Yield a comparison of what was loaded under a mask, which *wanted* need not be under: `rodvr+` is not."""
    yield filters.Mask(0, 0, mask, bytes(len(mask)))
    low = bytes(byte & bits for byte, bits in zip(wanted, mask, strict=True))
    yield filters.Compare(0, low, negated=negated)


def _text(name: bytes) -> str:
    return name.partition(b"\0")[0].decode(errors="replace")
