# SPDX-License-Identifier: Apache-2.0
"""What a resource of a stack asks GSaaS for, and what it shows of a lease."""

from __future__ import annotations

import base64
from typing import Any

import jsonschema
import pytest

from gsaas.api.schemas import leases
from gsaas_heat import translation

NOTHING: dict[str, Any] = {
    "name": None,
    "cgpus": {"count": 1, "mode": None, "memory_mb": None, "policy": None},
    "server": None,
    "consumer": None,
    "wait": 0,
    "priority": 0,
    "duration": None,
    "movable": "idle",
}
"""What Heat gives for a template without properties."""
LEASE = {
    "id": "28642596-0fcf-45aa-ba02-f3ba8468484c",
    "status": "ACTIVE",
    "server": {"id": "8c6b16e1-fbd8-4a35-8001-d68ea393e9de"},
    "devices": [
        {"index": 0, "masked_address": "169.254.71.1:8308", "memory_mb": 2048, "gpu_host": "gpu1"}
    ],
    "fault": None,
}


def request(**values: Any) -> dict[str, Any]:
    """Return the request for these properties, which the API's own schema admits."""
    found = translation.request({**NOTHING, **values}, "stack-gpus-x3f2")
    jsonschema.validate({"lease": found}, leases.CREATE)
    return found


def test_without_properties_one_whole_gpu_is_asked_for() -> None:
    assert request() == {
        "name": "stack-gpus-x3f2",
        "cgpus": {"count": 1, "mode": "exclusive"},
        "server": None,
    }


def test_cgpus_with_memory_are_shared() -> None:
    asked = request(cgpus={"count": 2, "mode": None, "memory_mb": 2048, "locality": "local"})
    assert asked["cgpus"] == {
        "count": 2,
        "mode": "shared",
        "memory_mb": 2048,
        "locality": "local",
    }


def test_a_mode_that_contradicts_the_memory_is_left_to_gsaas_to_refuse() -> None:
    asked = translation.request(
        {**NOTHING, "cgpus": {"count": 1, "mode": "exclusive", "memory_mb": 2048}}, "name"
    )
    assert asked["cgpus"]["mode"] == "exclusive"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"lease": asked}, leases.CREATE)


@pytest.mark.parametrize(
    ("wait", "asked"), [(0, {}), (600, {"wait": 600}), (translation.NO_LIMIT, {"wait": None})]
)
def test_a_request_waits_only_if_the_template_says_so(wait: int, asked: dict[str, Any]) -> None:
    found = request(wait=wait)
    assert {name: found[name] for name in found if name == "wait"} == asked


def test_name_priority_and_consumer_are_passed_on() -> None:
    asked = request(
        name="training", priority=-1, consumer={"host": "c1", "uid": 1000, "address": None}
    )
    assert asked["name"] == "training"
    assert asked["priority"] == -1
    assert asked["consumer"] == {"host": "c1", "uid": 1000}


def test_a_lease_lasts_as_long_as_the_template_says() -> None:
    assert "duration" not in request()
    assert request(duration=28800)["duration"] == 28800


def test_an_owner_consents_to_cuts_by_the_template():
    assert "movable" not in request()
    assert request(movable="cut")["movable"] == "cut"


def test_the_server_has_novas_names_for_its_fields() -> None:
    asked = request(
        server={
            "name": None,
            "image": "image-id",
            "flavor": "flavor-id",
            "networks": [
                {"network": "network-id", "port": None, "fixed_ip": "10.0.0.7", "tag": None},
                {"network": None, "port": "port-id", "fixed_ip": None, "tag": None},
            ],
            "key_name": "mine",
            "security_groups": ["ssh", "web"],
            "user_data": "#!/bin/sh\necho ä\n",
            "scheduler_hints": {"group": "group-id"},
            "config_drive": True,
            "metadata": {"of": "me"},
            "tags": ["a"],
            "availability_zone": "nova",
            "block_device_mapping_v2": [{"boot_index": 0, "uuid": "volume-id"}],
        }
    )
    user_data = asked["server"].pop("user_data")
    assert base64.b64decode(user_data).decode() == "#!/bin/sh\necho ä\n"
    assert asked["server"] == {
        "imageRef": "image-id",
        "flavorRef": "flavor-id",
        "networks": [{"uuid": "network-id", "fixed_ip": "10.0.0.7"}, {"port": "port-id"}],
        "key_name": "mine",
        "security_groups": [{"name": "ssh"}, {"name": "web"}],
        "os:scheduler_hints": {"group": "group-id"},
        "config_drive": True,
        "metadata": {"of": "me"},
        "tags": ["a"],
        "availability_zone": "nova",
        "block_device_mapping_v2": [{"boot_index": 0, "uuid": "volume-id"}],
    }


SERVER = {"flavor": "flavor-id", "image": "image-id"}
CONFIG_ID = "6f1d0d3e-8b5a-4f0e-9d0c-2f4c1b7f4a11"


def test_a_config_that_is_the_user_data_is_sent_not_its_id() -> None:
    """`{get_resource: boot_script}` is the id of the config."""
    values = {**NOTHING, "server": {**SERVER, "user_data": CONFIG_ID}}
    assert translation.config_id(values) == CONFIG_ID
    config = {"id": CONFIG_ID, "group": "Heat::Ungrouped", "config": "#!/bin/sh\necho ä\n"}
    sent = translation.request(values, "name", config)["server"]["user_data"]
    assert base64.b64decode(sent).decode() == "#!/bin/sh\necho ä\n"


@pytest.mark.parametrize(
    "server", [None, SERVER, {**SERVER, "user_data": None}, {**SERVER, "user_data": "#!/bin/sh"}]
)
def test_no_config_is_looked_up_for_other_user_data(server: dict[str, Any] | None) -> None:
    assert translation.config_id({**NOTHING, "server": server}) is None


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (None, "there is no software config with this id"),
        ({"group": "component", "config": {"configs": []}}, "of the group component"),
        ({"group": "puppet", "config": {"a": "map"}}, "an agent in the VM would need"),
    ],
)
def test_a_config_that_is_no_user_data_is_refused(
    config: dict[str, Any] | None, reason: str
) -> None:
    values = {**NOTHING, "server": {**SERVER, "user_data": CONFIG_ID}}
    with pytest.raises(ValueError, match=reason):
        translation.request(values, "name", config)


def test_what_only_heat_has_is_not_sent_to_nova() -> None:
    asked = request(
        server={**SERVER, "user_data_format": "RAW", "user_data_update_policy": "REPLACE"}
    )
    assert asked["server"] == {"flavorRef": "flavor-id", "imageRef": "image-id"}


@pytest.mark.parametrize(
    ("changed", "asked"),
    [
        ({"name": "training-2"}, [{"name": "training-2"}]),
        ({"name": None}, [{"name": "stack-gpus-x3f2"}]),
        ({"priority": -1}, [{"priority": -1}]),
        ({"priority": None}, [{"priority": 0}]),
        ({"duration": 3600}, [{"duration": 3600}]),
        ({"duration": None}, [{"ends_at": None}]),
        ({"movable": "cut"}, [{"movable": "cut"}]),
        ({"movable": None}, [{"movable": "idle"}]),
        ({"name": "a", "priority": -1}, [{"name": "a"}, {"priority": -1}]),
        ({"wait": 600}, []),
    ],
)
def test_a_changed_property_is_a_change_of_the_lease_if_the_api_has_one(
    changed: dict[str, Any], asked: list[dict[str, Any]]
) -> None:
    found = translation.changes(changed, "stack-gpus-x3f2")
    assert found == asked
    for change in found:
        jsonschema.validate({"lease": change}, leases.UPDATE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("status", "ACTIVE"),
        ("server_id", "8c6b16e1-fbd8-4a35-8001-d68ea393e9de"),
        ("masked_addresses", ["169.254.71.1:8308"]),
        (
            "devices",
            [{"index": 0, "masked_address": "169.254.71.1:8308", "memory_mb": 2048}],
        ),
    ],
)
def test_an_attribute_shows_the_lease_and_no_host(name: str, value: Any) -> None:
    assert translation.attribute(name, LEASE) == value


@pytest.mark.parametrize(("name", "value"), [("server_id", None), ("masked_addresses", [])])
def test_a_lease_that_waits_has_neither_server_nor_addresses(name: str, value: Any) -> None:
    waiting = {**LEASE, "status": "QUEUED", "server": None, "devices": []}
    assert translation.attribute(name, waiting) == value


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"step": "boot", "message": "no valid host"}, "failed at boot: no valid host"),
        ({"step": None, "message": "nobody left the queue"}, "failed: nobody left the queue"),
        (None, "is RELEASED"),
    ],
)
def test_a_failure_is_told_in_gsaas_own_words(fault: Any, said: str) -> None:
    lease = {**LEASE, "status": "RELEASED", "fault": fault}
    assert translation.failure(lease) == f"lease {LEASE['id']} {said}"
