# SPDX-License-Identifier: Apache-2.0
"""Dry runs: the response that a launch would get, without any claim."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from gsaas.db import models
from tests.api.world import World, only_error


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
        "relaxed": None,
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


# Requirements


@pytest.fixture
def mixed(tmp_path):
    """gpu1 has four M4000, gpu2 four H200 of compute capability 9.0; each is a compute host, too."""
    made = World.build(tmp_path)
    with made.database.write() as session:
        for gpu in session.scalars(select(models.GpuRow).where(models.GpuRow.host_name == "gpu2")):
            gpu.model, gpu.compute_capability = "NVIDIA H200", "9.0"
            gpu.generation += 1
    yield made
    made.database.close()


@pytest.mark.parametrize(
    ("wanted", "hosts"),
    {
        "a model": ({"count": 2, "gpu_model": "h200"}, {"gpu2"}),
        "a capability": ({"count": 2, "compute_capability": "8.6"}, {"gpu2"}),
        "a capability, in short": ({"count": 2, "compute_capability": "9"}, {"gpu2"}),
        "a host": ({"count": 4, "host": "gpu2"}, {"gpu2"}),
        "one host": ({"count": 4, "hosts": "one"}, {"gpu1"}),
        "spread": ({"count": 2, "hosts": "spread"}, {"gpu1", "gpu2"}),
    }.values(),
    ids=lambda value: repr(sorted(value) if isinstance(value, set) else value),
)
def test_a_requirement_is_met_by_checks_and_by_launches(mixed, wanted, hosts):
    shared = {"mode": "shared", "memory_mb": 100, "policy": "first-fit", **wanted}
    for cgpus in (wanted, shared):
        assert {device["gpu_host"] for device in check(mixed, "admin", **cgpus)["devices"]} == hosts
    lease = mixed.launch(**shared)
    asked = {name: value for name, value in wanted.items() if name != "count"}
    if "compute_capability" in asked:
        asked["compute_capability"] = {"9": "9.0"}.get(asked["compute_capability"], "8.6")
    assert asked.items() <= lease["cgpus"].items()
    with mixed.database.read() as session:
        stored = session.get(models.LeaseRow, lease["id"])
        assert stored.requirements == asked
        assert {claim.gpu.host_name for claim in stored.claims} == hosts


def test_a_requirement_that_is_busy_is_counted_and_the_nearest_request_drops_it(mixed):
    mixed.launch(count=4, gpu_model="H200")
    answer = check(mixed, count=2, gpu_model="h200")
    assert answer["code"] == "gsaas.capacity.busy"
    assert answer["filters"] == [{"filter": "exclusive", "gpus": 4}, {"filter": "model", "gpus": 4}]
    assert (answer["nearest"]["count"], answer["relaxed"]) == (2, "gpu_model")
    assert "gpu_model" not in answer["nearest"]
    assert answer["reason"] == (
        "4 of 8 GPUs are held exclusively, 4 are no h200; "
        "2 whole GPUs would fit now on another model"
    )
    assert check(mixed, count=2)["fits"] is True


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    {
        "model": (
            {"count": 1, "gpu_model": "A100"},
            "no GPU of this cloud is of model A100; the models are NVIDIA H200, Quadro M4000; "
            "1 whole GPU would fit now on another model",
        ),
        "capability": (
            {"count": 1, "compute_capability": "10.0"},
            "no GPU of this cloud has a compute capability of 10.0; the highest is 9.0; "
            "1 whole GPU would fit now with a lower compute capability",
        ),
        "host": (
            {"count": 1, "host": "gpu9"},
            "there is no GPU host gpu9; 1 whole GPU would fit now on another host",
        ),
        "spread": (
            {"count": 3, "hosts": "spread"},
            "3 whole GPUs on as many hosts cannot be had: the GPUs are on 2",
        ),
        "one": (
            {"count": 5, "hosts": "one"},
            "5 whole GPUs on one host cannot be had: no host has room for more than 4",
        ),
        "model and count": (
            {"count": 5, "gpu_model": "h200"},
            "5 whole GPUs cannot be had: this cloud has 4 GPUs of model h200",
        ),
    }.values(),
    ids=repr,
)
def test_a_requirement_that_no_gpu_meets_is_impossible_and_the_error_lists_what_exists(
    mixed, wanted, sentence
):
    answer = check(mixed, **wanted)
    assert (answer["code"], answer["reason"]) == ("gsaas.capacity.impossible", sentence)


@pytest.mark.parametrize(
    ("cgpus", "why"),
    [
        (
            {"count": 2, "hosts": "spread", "host": "gpu1"},
            "spread over different hosts and all be on one host",
        ),
        ({"count": 2, "hosts": "spread", "locality": "local"}, "all be local to one VM"),
        ({"count": 1, "compute_capability": "new"}, "compute_capability"),
        ({"count": 1, "hosts": "two"}, "hosts"),
    ],
    ids=repr,
)
def test_requirements_that_contradict_each_other_are_a_bad_request(mixed, cgpus, why):
    before = mixed.rows()
    for path, body in {
        "/v1/checks": {"check": cgpus},
        "/v1/leases": {"lease": {"cgpus": cgpus}},
    }.items():
        error = only_error(mixed.call("member", "POST", path, body))
        assert error["status"] == 400
        assert why in error["detail"]
    assert mixed.rows() == before


def test_the_locality_of_a_check_without_a_vm_refers_to_the_consumers_host(mixed):
    here = {"consumer": {"host": "gpu2"}, "count": 1}
    local = check(mixed, "admin", locality="local", **here)
    assert [device["gpu_host"] for device in local["devices"]] == ["gpu2"]
    near = check(mixed, "admin", policy="first-local", **here)
    assert [device["gpu_host"] for device in near["devices"]] == ["gpu2"]
    far = check(mixed, "admin", locality="remote", **here)
    assert [device["gpu_host"] for device in far["devices"]] == ["gpu1"]

    answer = check(mixed, locality="local", consumer={"host": "compute1"}, count=1)
    assert answer["fits"] is False
    assert (answer["nearest"]["locality"], answer["relaxed"]) == ("any", "locality")


def test_a_share_below_the_operators_least_never_fits(world: World):
    world.conf.set_override("min_share_mb", 64, "gpgpums")
    small = {"count": 1, "mode": "shared", "memory_mb": 63}
    reason = "63 MiB for each cGPU is less than the smallest share of this cloud, 64 MiB; 63 GiB would be 64512"
    before = world.rows()
    answer = check(world, **small)
    assert (answer["fits"], answer["code"], answer["reason"]) == (
        False,
        "gsaas.capacity.impossible",
        reason,
    )
    bodies = {
        "leases": {"lease": {"cgpus": small}},
        "reservations": {"reservation": {"cgpus": small, "end": "2040-01-01"}},
    }
    newest = {"OpenStack-API-Version": "gpu-scheduling latest"}
    for noun, body in bodies.items():
        error = only_error(world.call("member", "POST", f"/v1/{noun}", body, headers=newest))
        assert (error["status"], error["code"], error["detail"]) == (
            409,
            "gsaas.capacity.impossible",
            reason,
        )
    assert world.rows() == before
    assert check(world, **small | {"memory_mb": 64})["fits"] is True
