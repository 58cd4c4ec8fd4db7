# SPDX-License-Identifier: Apache-2.0
"""Identity addresses: one port each, and none used again too soon."""

from __future__ import annotations

import ipaddress

import pytest

from gsaas.rodvr.identities import Identities, NoIdentityLeft


@pytest.fixture
def identities() -> Identities:
    return Identities(ipaddress.IPv4Network("240.71.0.0/29"))


def test_addresses_are_allocated_in_order_without_the_network_s_own(identities: Identities) -> None:
    allocated = [identities.allocate(f"port-{i}") for i in range(6)]
    assert allocated == [f"240.71.0.{i}" for i in range(1, 7)]


def test_a_port_keeps_its_address(identities: Identities) -> None:
    assert identities.allocate("port-1") == identities.allocate("port-1") == "240.71.0.1"


def test_a_released_address_is_used_again_last(identities: Identities) -> None:
    identities.allocate("port-1")
    identities.release("port-1")
    allocated = [identities.allocate(f"new-{i}") for i in range(6)]
    assert allocated == [f"240.71.0.{i}" for i in (2, 3, 4, 5, 6, 1)]


def test_no_address_is_allocated_twice(identities: Identities) -> None:
    for i in range(6):
        identities.allocate(f"port-{i}")
    with pytest.raises(NoIdentityLeft, match="all 6 identity addresses"):
        identities.allocate("one-too-many")
    identities.release("port-3")
    assert identities.allocate("one-too-many") == "240.71.0.4"


def test_adopted_addresses_are_assigned_and_new_ones_come_after_them(
    identities: Identities,
) -> None:
    assert identities.adopt("port-1", "240.71.0.3")
    assert identities.get("port-1") == "240.71.0.3"
    assert identities.allocate("port-2") == "240.71.0.4"


@pytest.mark.parametrize("address", ["240.71.0.0", "240.71.0.7", "240.71.1.1", "10.0.0.1"])
def test_addresses_outside_the_network_are_not_adopted(
    identities: Identities, address: str
) -> None:
    assert not identities.adopt("port-1", address)
    assert identities.get("port-1") is None


def test_an_address_is_adopted_by_one_port_and_a_port_adopts_one_address(
    identities: Identities,
) -> None:
    assert identities.adopt("port-1", "240.71.0.1")
    assert identities.adopt("port-1", "240.71.0.1")
    assert not identities.adopt("port-2", "240.71.0.1")
    assert not identities.adopt("port-1", "240.71.0.2")
    assert identities.all() == [("240.71.0.1", ("port-1", ""))]


def test_releasing_what_is_not_assigned_is_nothing(identities: Identities) -> None:
    identities.release("port-1")
    assert identities.all() == []


def test_each_address_of_a_port_has_an_identity_of_its_own(identities: Identities) -> None:
    first, other = identities.allocate("port-1"), identities.allocate("port-1", "10.0.1.9")
    assert (first, other) == ("240.71.0.1", "240.71.0.2")
    assert identities.of_port("port-1") == [first, other]
    assert not identities.adopt("port-2", other, "10.0.1.9")
    identities.release("port-1", "10.0.1.9")
    assert identities.of_port("port-1") == [first]
