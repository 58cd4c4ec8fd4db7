# SPDX-License-Identifier: Apache-2.0
"""A tenant's server fields are passed to Nova unchanged or refused by name."""

from __future__ import annotations

import pytest

from gsaas.cloud.nova import requests
from gsaas.exceptions import ServerRefused

LEASE = "8e9d6ad2-5a39-4d1f-a3b9-4b4a0ad9d9a1"
TAG = f"gsaas-lease-{LEASE}"
MINIMAL = {"imageRef": "debian", "flavorRef": "small"}


def test_fields_of_nova_are_passed_unchanged():
    given = {
        **MINIMAL,
        "name": "training",
        "networks": [{"uuid": "net-1", "fixed_ip": "10.0.0.9"}, {"port": "port-1"}],
        "key_name": "laptop",
        "security_groups": [{"name": "web"}],
        "availability_zone": "az1",
        "metadata": {"team": "blue"},
        "block_device_mapping_v2": [{"boot_index": 0, "source_type": "image", "uuid": "debian"}],
        "config_drive": True,
        "description": "my first",
        "hostname": "one",
        "tags": ["mine"],
    }
    body = requests.body(given, "ZGF0YQ==", LEASE, None)
    assert body == {"server": {**given, "user_data": "ZGF0YQ==", "tags": ["mine", TAG]}}


@pytest.mark.parametrize(
    "spelling", ["scheduler_hints", "os:scheduler_hints", "OS-SCH-HNT:scheduler_hints"]
)
def test_scheduler_hints_are_beside_the_server_in_any_spelling(spelling):
    body = requests.body({**MINIMAL, spelling: {"group": "g"}}, "", LEASE, None)
    assert body["os:scheduler_hints"] == {"group": "g"}
    assert spelling not in body["server"]


def test_short_spellings_mean_the_same():
    short = {"image": "debian", "flavor": "small", "network": "net-1"}
    assert requests.fields(short) == {**MINIMAL, "networks": [{"uuid": "net-1"}]}


def test_without_a_network_nova_chooses_one():
    assert requests.fields(MINIMAL)["networks"] == "auto"


def test_a_pinned_server_names_its_host_and_another_does_not():
    assert requests.body(MINIMAL, "", LEASE, "compute1")["server"]["host"] == "compute1"
    assert "host" not in requests.body(MINIMAL, "", LEASE, None)["server"]


def test_the_tenants_request_is_not_modified():
    given = {**MINIMAL, "tags": ["mine"], "user_data": "eA=="}
    requests.body(given, "eQ==", LEASE, None)
    assert given == {**MINIMAL, "tags": ["mine"], "user_data": "eA=="}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"host": "compute1"}, "server.host: a tenant does not choose"),
        ({"hypervisor_hostname": "compute1"}, "a tenant does not choose"),
        ({"availability_zone": "nova:compute1"}, "no host in the zone"),
        ({"min_count": 2}, "a lease has one VM"),
        ({"max_count": 2}, "a lease has one VM"),
        ({"networks": "none"}, "could not reach its cGPUs"),
        ({"networks": []}, "could not reach its cGPUs"),
        ({"personality": []}, "user_data"),
        ({"return_reservation_id": True}, "no such field"),
        ({"image": "other"}, "both were given"),
        ({"flavorRef": ""}, "needs a flavor"),
        ({"imageRef": ""}, "needs an image"),
    ],
)
def test_fields_that_may_not_be_passed_on_are_refused_by_name(fields, words):
    with pytest.raises(ServerRefused, match=words):
        requests.fields({**MINIMAL, **fields})


def test_a_server_that_boots_from_a_volume_needs_no_image():
    volume = {"flavorRef": "small", "block_device_mapping_v2": [{"boot_index": 0}]}
    assert "imageRef" not in requests.fields(volume)
