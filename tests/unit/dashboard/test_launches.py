# SPDX-License-Identifier: Apache-2.0
"""The fields of the launch page as a request of the API. The API's own schema judges the requests."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from gsaas.api.schemas import leases as schemas
from gsaas.cloud.nova.defaults import Missing
from gsaas_dashboard.presentation import launches

FORM = {
    "count": 2,
    "mode": "shared",
    "memory_mb": 2048,
    "locality": "any",
    "hosts": "any",
    "policy": "",
    "gpu_model": "",
    "compute_capability": "",
    "image": "42",
    "flavor": "7",
    "network": "",
    "key_name": "",
    "name": "",
    "wait": "no",
    "duration": "",
}


def lease(**fields: Any) -> dict[str, Any]:
    """Return the request of a form, which the API accepts."""
    found = launches.lease({**FORM, **fields})
    jsonschema.validate({"lease": found}, schemas.CREATE)
    return found


def test_what_was_not_filled_in_is_not_asked_for() -> None:
    assert lease() == {
        "cgpus": {"count": 2, "mode": "shared", "memory_mb": 2048},
        "server": {"imageRef": "42", "flavorRef": "7"},
    }


def test_all_that_can_be_filled_in() -> None:
    found = lease(
        locality="remote",
        hosts="spread",
        policy="best-fit",
        gpu_model="cuda/A2",
        compute_capability="8.0",
        network="9",
        key_name="mine",
        name="training",
        wait="600",
    )
    assert found == {
        "name": "training",
        "wait": 600,
        "cgpus": {
            "count": 2,
            "mode": "shared",
            "memory_mb": 2048,
            "locality": "remote",
            "policy": "best-fit",
            "kind": "cuda",
            "gpu_model": "A2",
            "compute_capability": "8.0",
            "hosts": "spread",
        },
        "server": {
            "imageRef": "42",
            "flavorRef": "7",
            "key_name": "mine",
            "name": "training",
            "networks": [{"uuid": "9"}],
        },
    }


def test_a_lease_without_a_vm() -> None:
    assert lease(image=launches.NO_VM)["server"] is None


def test_the_cloud_chooses_image_flavor_and_network_if_nobody_does() -> None:
    assert lease(image="", flavor="", key_name="mine")["server"] == {"key_name": "mine"}
    assert lease(image="", flavor="")["server"] == {}


def test_what_the_cloud_cannot_choose_is_said_at_its_field() -> None:
    missing = [
        Missing("imageRef", ("debian", "guest"), 3),
        Missing("flavorRef", ("small",), 0),
        Missing("networks", (), 0),
    ]
    assert launches.undecided({"missing": [each.to_dict() for each in missing]}) == {
        "image": "This cloud has no default image for your project: choose one.",
        "flavor": "This cloud has no default flavor for your project: choose one.",
        "network": "This cloud has no default network for your project: your project can use none.",
    }
    assert launches.undecided({"nearest": None}) == {}


def test_memory_is_not_asked_for_in_exclusive_mode() -> None:
    assert lease(mode="exclusive")["cgpus"] == {"count": 2, "mode": "exclusive"}


@pytest.mark.parametrize(
    ("choice", "wait"),
    [("no", "absent"), ("600", 600), ("3600", 3600), ("86400", 86400), ("forever", None)],
)
def test_how_long_to_wait(choice: str, wait: object) -> None:
    assert lease(wait=choice).get("wait", "absent") == wait


def test_parts_of_gpus_need_a_size() -> None:
    assert launches.is_shared_without_memory({"mode": "shared", "memory_mb": None})
    assert not launches.is_shared_without_memory(FORM)
    assert not launches.is_shared_without_memory({"mode": "exclusive"})


def test_a_lease_lasts_as_long_as_was_chosen() -> None:
    assert "duration" not in lease()
    assert lease(duration="28800")["duration"] == 28800
