# SPDX-License-Identifier: Apache-2.0
"""Matches and targets of iptables: the few of xtables' extensions whose data is understood, as expressions."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from gsaas.rodvr import filters
from gsaas.rodvr.filters import Decide, Expression, IsState, Opaque, Verdict

_BY_STATE = 1
"""XT_CONNTRACK_STATE: the only one of the flags of `conntrack` that is understood."""
_WRITTEN_AS_STATE = 1 << 13
"""XT_CONNTRACK_STATE_ALIAS: how `-m state` differs from `-m conntrack --ctstate`."""
_CONNTRACK_FLAGS = struct.Struct("=HHH")
_CONNTRACK_AT = 146
"""Where match_flags, invert_flags and state_mask are, behind eight addresses, two times and five numbers."""
_TCP = struct.Struct("=4H4B")
_ANY_PORT = (0, 0xFFFF)
_TCP_FLAGS_INVERTED, _TCP_DESTINATION_INVERTED = 4, 2
_NOTRACK = 1
_RANGES = 64
"""Bytes of the first and the last source, and of destinations, 16 each; what of these counts is behind them."""
_TCP_DESTINATION, _TCP_FLAGS = 2, 13


def match_of(name: str, revision: int, info: bytes) -> Iterator[Expression]:
    """Return what a match means; a condition that is not understood for most of them."""
    match name:
        case "comment":
            pass
        case "conntrack" if (
            revision in (2, 3) and len(info) >= _CONNTRACK_AT + _CONNTRACK_FLAGS.size
        ):
            flags, inverted, states = _CONNTRACK_FLAGS.unpack_from(info, _CONNTRACK_AT)
            if flags & ~_WRITTEN_AS_STATE == _BY_STATE:
                yield IsState(states, negated=bool(inverted & _BY_STATE))
            else:
                yield Opaque(name)
        case "state" if len(info) >= 4:
            yield IsState(struct.unpack_from("=I", info)[0])
        case "iprange" if revision == 1 and len(info) > _RANGES:
            yield from _in_ranges(info)
        case "tcp" if len(info) >= _TCP.size:
            yield from _tcp(info)
        case _:
            yield Opaque(name)


def _in_ranges(info: bytes) -> Iterator[Expression]:
    for field_at, first, counts, inverted in ((12, 0, 0x01, 0x10), (16, 32, 0x02, 0x20)):
        if info[_RANGES] & counts:
            low, high = info[first : first + 4], info[first + 16 : first + 20]
            yield filters.Load(0, "network", field_at, 4)
            yield filters.Compare(0, low, high, negated=bool(info[_RANGES] & inverted))


def _tcp(info: bytes) -> Iterator[Expression]:
    first, last, to_first, to_last, option, mask, flags, inverted = _TCP.unpack_from(info)
    if option or (first, last) != _ANY_PORT:
        yield Opaque("tcp")
    if (to_first, to_last) != _ANY_PORT:
        yield filters.Load(0, "transport", _TCP_DESTINATION, 2)
        low, high = to_first.to_bytes(2, "big"), to_last.to_bytes(2, "big")
        yield filters.Compare(0, low, high, negated=bool(inverted & _TCP_DESTINATION_INVERTED))
    if mask:
        yield filters.Load(0, "transport", _TCP_FLAGS, 1)
        yield filters.Mask(0, 0, bytes([mask]), b"\0")
        yield filters.Compare(0, bytes([flags]), negated=bool(inverted & _TCP_FLAGS_INVERTED))


def target_of(name: str, info: bytes) -> Iterator[Expression]:
    """Return what a target does, as far as that matters here: most of them let the packet go on."""
    match name:
        case "REJECT" | "TARPIT":
            yield Decide(Verdict.DROP)
        case "NOTRACK":
            yield filters.Untrack()
        case "CT" if len(info) >= 4:
            flags, zone = struct.unpack_from("=HH", info)
            if flags & _NOTRACK:
                yield filters.Untrack()
            elif zone:
                yield filters.SetZone(zone=zone)
        case "DNAT" | "SNAT" | "MASQUERADE" | "REDIRECT" | "NETMAP" | "NFQUEUE" | "TPROXY":
            yield Decide(Verdict.ACCEPT)
        case _:
            pass
