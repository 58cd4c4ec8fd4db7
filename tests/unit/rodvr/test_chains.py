# SPDX-License-Identifier: Apache-2.0
"""What expressions of nftables mean, by the numbers and forms that the kernel has for them."""

from __future__ import annotations

import pytest
from pyroute2.netlink.nfnetlink import nftsocket

from gsaas.netlink import wire
from gsaas.rodvr.filters import Compare, Decide, Load, Opaque, Verdict
from gsaas.rodvr.kernel import chains
from gsaas.rodvr.kernel.extensions import match_of

_NAME, _DATA = 1, 2


def expression(name: str, *fields: bytes, kind: int = 1) -> bytes:
    return wire.nested(kind, wire.text(_NAME, name), wire.nested(_DATA, *fields))


DROP = expression("immediate", wire.be32(1, 0), wire.nested(2, wire.nested(2, wire.be32(1, 0))))


def read(*encoded: bytes) -> list:
    return list(chains._expressions(b"".join(encoded)))


@pytest.mark.skipif(
    not hasattr(nftsocket, "Meta"), reason="pyroute2 before 0.9.2 has no such numbers"
)
def test_keys_of_meta_have_the_numbers_of_the_kernel() -> None:
    numbers = {
        nftsocket.Meta[f"NFT_META_{name.upper()}"].value: name for name in chains._META.values()
    }
    assert numbers == chains._META


COUNTER, QUOTA, CT_HELPER, LIMIT = 1, 2, 3, 4


@pytest.mark.parametrize("kind", [COUNTER, CT_HELPER])
def test_objects_that_only_count_are_no_conditions(kind: int) -> None:
    rule = read(expression("objref", wire.be32(1, kind), wire.text(2, "its-name")), DROP)
    assert rule == [Decide(Verdict.DROP)]


@pytest.mark.parametrize("kind", [QUOTA, LIMIT])
def test_quotas_and_limits_with_a_name_are(kind: int) -> None:
    rule = read(expression("objref", wire.be32(1, kind), wire.text(2, "its-name")), DROP)
    assert rule == [Opaque("object"), Decide(Verdict.DROP)]


def test_and_so_is_an_object_from_a_map() -> None:
    (first, _) = read(expression("objref", wire.be32(3, 1), wire.text(4, "objects")), DROP)
    assert first == Opaque("object")


ADD, UPDATE, DELETE = 0, 1, 2


def dynset(operation: int, *more: bytes) -> bytes:
    return expression("dynset", wire.text(1, "seen"), wire.be32(3, operation), *more)


@pytest.mark.parametrize("operation", [ADD, UPDATE])
def test_a_rule_goes_on_after_it_has_added_to_a_set(operation: int) -> None:
    assert read(dynset(operation), DROP) == [Decide(Verdict.DROP)]
    counts = expression("counter", kind=7)
    assert read(dynset(operation, counts), DROP) == [Decide(Verdict.DROP)]
    both = wire.nested(10, expression("counter"), expression("last"))
    assert read(dynset(operation, both), DROP) == [Decide(Verdict.DROP)]


@pytest.mark.parametrize(
    "rule",
    [
        dynset(DELETE),
        dynset(ADD, wire.be32(9, 1)),
        dynset(ADD, expression("limit", kind=7)),
        dynset(ADD, wire.nested(10, expression("counter"), expression("connlimit"))),
    ],
    ids=["delete", "if it is full", "a limit for each", "connections of each"],
)
def test_what_else_is_done_with_a_set_is_a_condition(rule: bytes) -> None:
    assert read(rule, DROP) == [Opaque("dynset"), Decide(Verdict.DROP)]


SOURCES, DESTINATIONS, INVERTED_SOURCES = 0x01, 0x02, 0x10


@pytest.mark.parametrize(
    ("flags", "place", "negated"),
    [(SOURCES, 12, False), (DESTINATIONS, 16, False), (SOURCES | INVERTED_SOURCES, 12, True)],
)
def test_a_range_of_addresses_of_iptables(flags: int, place: int, negated: bool) -> None:
    low, high = b"\xf0\0\0\0", b"\xff\xff\xff\xfe"
    bounds = low.ljust(16, b"\0") + high.ljust(16, b"\0")
    info = bounds + bounds + bytes([flags]) + bytes(7)
    assert list(match_of("iprange", 1, info)) == [
        Load(0, "network", place, 4),
        Compare(0, low, high, negated=negated),
    ]
    assert list(match_of("iprange", 0, info)) == [Opaque("iprange")]
