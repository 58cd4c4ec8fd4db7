# SPDX-License-Identifier: Apache-2.0
"""Reads the two tables: the requests that list them, and the state that their dumps describe."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

from pyroute2.netlink.nfnetlink import nftsocket as nft

from gsaas.netlink import wire
from gsaas.netlink.expressions import SUBSYSTEM
from gsaas.netlink.wire import Message
from gsaas.objects.address import Address
from gsaas.objects.binding import INVALID_UID
from gsaas.rodvr import plan
from gsaas.rodvr.kernel.attributes import (
    CHAIN_NAME,
    CHAIN_PREFIX,
    CHAIN_TABLE,
    CHAIN_USERDATA,
    COUNTER_BYTES,
    COUNTER_PACKETS,
    ELEMENT_DATA,
    ELEMENT_EXPRESSION,
    ELEMENT_KEY,
    EXPRESSION_DATA,
    EXPRESSION_NAME,
    LIST_ELEMENTS,
    LIST_SET,
    LIST_TABLE,
    RULE_CHAIN,
    RULE_EXPRESSIONS,
    RULE_TABLE,
)
from gsaas.rodvr.kernel.ruleset import TABLE, TAP_COUNTERS
from gsaas.rodvr.recent_refusals import RefusalCounts


def list_elements(family: int, name: str) -> Message:
    """Return the request for all elements of a set or map of RODVR's table."""
    body = wire.text(LIST_TABLE, TABLE) + wire.text(LIST_SET, name)
    return Message(SUBSYSTEM | nft.NFT_MSG_GETSETELEM, family, body, 0, f"read set {name}")


def list_chains(family: int) -> Message:
    """Return the request for the chains of RODVR's table. Kernels may answer with those of other tables too."""
    body = wire.text(CHAIN_TABLE, TABLE)
    return Message(SUBSYSTEM | nft.NFT_MSG_GETCHAIN, family, body, 0, "read chains")


def list_rules(family: int) -> Message:
    """Return the request for the rules of RODVR's table. Kernels may answer with those of other tables too."""
    body = wire.text(RULE_TABLE, TABLE)
    return Message(SUBSYSTEM | nft.NFT_MSG_GETRULE, family, body, 0, "read rules")


def read_state(
    chains: Iterable[bytes],
    rules: Iterable[bytes],
    sources: Iterable[bytes],
    back: Iterable[bytes],
    real: Iterable[bytes],
    local: Iterable[bytes],
    rules_per_tap: int | None,
) -> plan.DatapathState:
    """Return the state that dumps of the two tables describe: chains and rules of netdev, and the maps.

    The chain of a tap is intact with *rules_per_tap* rules; with None, whatever it has, because it is about to be made
    anew, and only has to tell which port it belongs to.
    """
    state = plan.DatapathState()
    counts = count_rules(rules)
    for name, comment in _read_chains(chains).items():
        if name.startswith(CHAIN_PREFIX):
            intact = rules_per_tap in (None, counts.get(name))
            state.chains[name.removeprefix(CHAIN_PREFIX)] = _read_tag(comment) if intact else None
    for key, value, _ in _read_elements(sources):
        (ifindex,) = struct.unpack_from("=I", key)
        of_tap = state.sources.setdefault(ifindex, {})
        of_tap[socket.inet_ntoa(key[4:8])] = socket.inet_ntoa(value[:4])
    for key, value, _ in _read_elements(back):
        (ifindex,) = struct.unpack_from("=I", value)
        path = plan.ReturnPath(ifindex, value[4:10].hex(":"), socket.inet_ntoa(value[12:16]))
        state.return_paths[socket.inet_ntoa(key)] = path
    for key, value, _ in _read_elements(real):
        masked = _read_address(key[4:])
        state.mappings.setdefault(socket.inet_ntoa(key[:4]), {})[masked] = _read_address(value)
    for key, value, _ in _read_elements(local):
        (uid,) = struct.unpack_from("=I", key)
        local_key = plan.LocalKey(_read_address(key[4:]), None if uid == INVALID_UID else uid)
        state.local_mappings[local_key] = _read_address(value)
    return state


def count_rules(rules: Iterable[bytes]) -> dict[str, int]:
    """Return chain -> how many rules it has, of RODVR's table."""
    counts: dict[str, int] = {}
    for body in rules:
        fields = wire.by_kind(body)
        if wire.string(fields.get(RULE_TABLE)) == TABLE:
            chain = wire.string(fields[RULE_CHAIN])
            counts[chain] = counts.get(chain, 0) + 1
    return counts


class TapCounters(NamedTuple):
    """What the chain of a tap has counted since it was made."""

    sent_bytes: int
    """Bytes of the packets that the VM sent to masked addresses: of IPv4 packets, without Ethernet's headers."""
    dropped: RefusalCounts
    """Packets that were dropped."""


def read_tap_counters(rules: Iterable[bytes]) -> dict[str, TapCounters]:
    """Return tap -> what its chain has counted."""
    expressions: dict[str, list[bytes]] = {}
    for body in rules:
        fields = wire.by_kind(body)
        chain = wire.string(fields.get(RULE_CHAIN))
        if chain.startswith(CHAIN_PREFIX) and wire.string(fields.get(RULE_TABLE)) == TABLE:
            tap = chain.removeprefix(CHAIN_PREFIX)
            expressions.setdefault(tap, []).append(fields[RULE_EXPRESSIONS])
    longest = -min(min(places) for places in TAP_COUNTERS.values())
    counters = {}
    for tap, rules_of in expressions.items():  # dumps keep the order
        if len(rules_of) >= longest:
            counted = {
                name: [_read_counter(rules_of[place]) for place in places]
                for name, places in TAP_COUNTERS.items()
            }
            sent = sum(each.bytes for each in counted.pop("sent"))
            packets = {name: sum(each.packets for each in found) for name, found in counted.items()}
            counters[tap] = TapCounters(sent, RefusalCounts(**packets))
    return counters


def read_strangers(elements: Iterable[bytes]) -> dict[int, str]:
    """Return interface index -> the address that was remembered there, of the elements of `strangers`."""
    return {
        struct.unpack_from("=I", key)[0]: socket.inet_ntoa(value[:4])
        for key, value, _ in _read_elements(elements)
    }


def read_received(elements: Iterable[bytes]) -> dict[str, int]:
    """Return identity -> bytes of the IPv4 packets from daemons to its VM, of the elements of `back`."""
    return {
        socket.inet_ntoa(key): _read_count(expression).bytes
        for key, _, expression in _read_elements(elements)
    }


def read_unmapped(elements: Iterable[bytes]) -> dict[str, int]:
    """Return identity, or local masked address -> connections to masked addresses without a mapping."""
    return {
        socket.inet_ntoa(key): _read_count(expression).packets
        for key, _, expression in _read_elements(elements)
    }


def _read_chains(chains: Iterable[bytes]) -> dict[str, str]:
    """Return chain -> its comment, of RODVR's table."""
    comments = {}
    for body in chains:
        fields = wire.by_kind(body)
        if wire.string(fields.get(CHAIN_TABLE)) == TABLE:
            name = wire.string(fields[CHAIN_NAME])
            comments[name] = wire.read_comment(fields.get(CHAIN_USERDATA))
    return comments


def _read_elements(bodies: Iterable[bytes]) -> Iterable[tuple[bytes, bytes, bytes]]:
    """Yield (key, data, expression) of every element of a dump; data and expression may be empty."""
    for body in bodies:
        for _, element in wire.attributes(wire.by_kind(body).get(LIST_ELEMENTS, b"")):
            fields = wire.by_kind(element)
            # Behind their own header, key and data contain one value attribute each.
            key, data = fields[ELEMENT_KEY][4:], fields.get(ELEMENT_DATA, b"")[4:]
            yield key, data, fields.get(ELEMENT_EXPRESSION, b"")


class _Count(NamedTuple):
    bytes: int = 0
    packets: int = 0


def _read_counter(expressions: bytes) -> _Count:
    """Return what the first counter of a rule has counted."""
    for _, expression in wire.attributes(expressions):
        if wire.string(wire.by_kind(expression).get(EXPRESSION_NAME)) == "counter":
            return _read_count(expression)
    return _Count()


def _read_count(expression: bytes) -> _Count:
    data = wire.by_kind(wire.by_kind(expression).get(EXPRESSION_DATA, b""))
    count, packets = (
        int.from_bytes(data.get(kind, b""), "big") for kind in (COUNTER_BYTES, COUNTER_PACKETS)
    )
    return _Count(count, packets)


def _read_address(value: bytes) -> Address:
    return Address(socket.inet_ntoa(value[:4]), int.from_bytes(value[4:6], "big"))


def _read_tag(comment: str) -> plan.ChainTag | None:
    try:
        return plan.ChainTag.parse(comment)
    except ValueError:
        return None
