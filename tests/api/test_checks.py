"""Dry runs: the answer a launch would get, and nothing else."""

from __future__ import annotations

import pytest


def check(world, caller="member", **cgpus):
    response = world.call(caller, "POST", "/v1/checks", {"check": cgpus})
    assert response.status_code == 200
    return response.json["check"]


def test_a_fitting_request_shows_its_devices(world):
    before = world.rows()
    wanted = {"count": 2, "mode": "shared", "memory_mb": 100, "policy": "first-fit"}
    answer = {
        "fits": True,
        "code": None,
        "reason": None,
        "filters": [],
        "nearest": None,
        "devices": [{"memory_mb": 100}, {"memory_mb": 100}],
    }
    assert check(world, **wanted) == answer
    where = {"gpu_uuid": "GPU-0001-0", "gpu_host": "gpu1"}
    seen_by_admin = [{"memory_mb": 100} | where] * 2
    assert check(world, "admin", **wanted) == answer | {"devices": seen_by_admin}
    assert world.rows() == before
    assert world.engine.woken == []


def test_a_request_that_does_not_fit_now_says_what_would(world):
    world.launch(count=5)
    world.launch(count=3, mode="shared", memory_mb=5000)
    before = world.rows()
    answer = check(world, count=2, mode="shared", memory_mb=4096)
    assert answer["fits"] is False
    assert answer["code"] == "gsaas.capacity.busy"
    assert {item["filter"]: item["gpus"] for item in answer["filters"]} == {
        "exclusive": 5,
        "memory": 3,
    }
    assert answer["nearest"] == {
        "count": 2,
        "mode": "shared",
        "memory_mb": 3192,
        "locality": "any",
    }
    assert world.rows() == before


@pytest.mark.parametrize(
    "cgpus", [{"count": 9}, {"count": 1, "mode": "shared", "memory_mb": 8193}], ids=repr
)
def test_a_request_that_never_fits_says_so(world, cgpus):
    answer = check(world, **cgpus)
    assert (answer["fits"], answer["code"]) == (False, "gsaas.capacity.impossible")
    assert answer["reason"]


def test_what_is_nearest_really_fits(world):
    world.launch(count=7)
    nearest = check(world, count=4, mode="shared", memory_mb=6000)["nearest"]
    assert check(world, **nearest)["fits"] is True
    world.launch(**nearest)


def test_a_check_and_a_launch_agree(world):
    for count in (8, 9):
        checked = check(world, count=count)
        launched = world.call(
            "member", "POST", "/v1/leases", {"lease": {"cgpus": {"count": count}}}
        )
        assert checked["fits"] == (launched.status_code == 202)
