# SPDX-License-Identifier: Apache-2.0
"""Bindings travel as plain values, and what is none is refused where it arrives."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gsaas.objects.address import Address
from gsaas.objects.binding import INVALID_UID, Binding, LocalBinding, binding_from_dict

MAPPINGS = {Address("169.254.72.1", 8308): Address("192.0.2.7", 8309)}
OF_A_VM = Binding("port-1", "lease-1", "tap1", "fa:16:3e:00:00:05", "10.0.0.5", MAPPINGS)
WITH_TWO_ADDRESSES = replace(OF_A_VM, other_ips=("10.0.1.9",))
OF_A_USER = LocalBinding("lease-2", "lease-2", 1000, MAPPINGS)
OF_EVERYBODY = LocalBinding("lease-3", "lease-3", None, MAPPINGS)


@pytest.mark.parametrize("binding", [OF_A_VM, WITH_TWO_ADDRESSES, OF_A_USER, OF_EVERYBODY])
def test_a_binding_arrives_as_what_it_was(binding):
    assert binding_from_dict(json.loads(json.dumps(binding.to_dict()))) == binding


def test_endpoints_of_the_release_before_know_all_of_a_binding_with_one_address():
    assert set(OF_A_VM.to_dict()) == {"port_id", "lease_id", "tap", "mac", "ip", "mappings"}


@pytest.mark.parametrize("ips", [["10.0.0.300"], ["fd00::5"], "10.0.0.5"])
def test_further_addresses_are_ipv4_addresses(ips):
    with pytest.raises(ValueError):
        binding_from_dict(OF_A_VM.to_dict() | {"other_ips": ips})


@pytest.mark.parametrize("uid", [-1, INVALID_UID, INVALID_UID + 1])
def test_a_number_that_is_no_users_is_refused(uid):
    """One of them would mean everybody to the kernel."""
    with pytest.raises(ValueError, match="not a user id"):
        binding_from_dict(OF_A_USER.to_dict() | {"uid": uid})


@pytest.mark.parametrize(
    "changes", [{"mappings": {"x": "y"}}, {"mappings": {"169.254.72.1:0": "192.0.2.7:1"}}]
)
def test_what_is_no_address_is_refused(changes):
    with pytest.raises(ValueError):
        binding_from_dict(OF_A_USER.to_dict() | changes)
