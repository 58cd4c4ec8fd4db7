# SPDX-License-Identifier: Apache-2.0
"""Operators move cGPUs of leases to other GPUs: what is answered, what is refused, and what tenants see of it."""

from __future__ import annotations

from typing import Any

import pytest

from gsaas.db import clock, readings
from gsaas.db.readings import PathReading
from tests.api.world import World, only_error

NEWEST = {"OpenStack-API-Version": "gpu-scheduling latest"}


def launched(world: World, server: Any = None, **cgpus: Any) -> dict[str, Any]:
    """Return an ACTIVE lease as an operator sees it."""
    wanted = {"mode": "shared", "memory_mb": 1024} | cgpus
    lease_id = world.launch("member", server, **wanted)["id"]
    world.engine.settle()
    return shown(world, lease_id)


def shown(world: World, lease_id: str, caller: str = "admin") -> dict[str, Any]:
    return world.call(caller, "GET", f"/v1/leases/{lease_id}", headers=NEWEST).json["lease"]


def move(world: World, lease: dict[str, Any], caller: str = "admin", **wanted: Any) -> Any:
    path = f"/v1/leases/{lease['id']}/move"
    return world.call(caller, "POST", path, {"move": wanted}, headers=NEWEST)


def refusal(world: World, lease: dict[str, Any], **wanted: Any) -> str:
    """Return why a move is refused, which changes nothing, whether it is to be done or only asked for."""
    before = world.rows()
    details = []
    for dry_run in (True, False):
        error = only_error(move(world, lease, **wanted, dry_run=dry_run))
        assert (error["status"], error["code"]) == (409, "gsaas.lease.not-movable")
        details.append(error["detail"])
    assert world.rows() == before
    assert details[0] == details[1]
    return details[0]


def connect(world: World, lease: dict[str, Any], number: int) -> None:
    """The endpoint of a lease reports so many open connections."""
    with world.database.writing() as connection:
        reading = PathReading(lease["id"], 1000, 1000, number, 0)
        readings.add_paths(connection, [reading], clock.now(connection))


@pytest.fixture
def world(tmp_path):
    made = World.build(tmp_path)
    yield made
    made.database.close()


@pytest.fixture
def lease(world):
    """A lease with one cGPU, which may be anywhere."""
    return launched(world)


def other_host(lease: dict[str, Any]) -> str:
    """Return a GPU host on which the first cGPU of a lease is not."""
    return "gpu2" if lease["devices"][0]["gpu_host"] == "gpu1" else "gpu1"


def test_the_answer_says_what_moves_where_and_of_which_kind_it_is(world, lease):
    response = move(world, lease, host=other_host(lease))
    assert response.status_code == 202
    moving = response.json["move"]
    (cgpu,) = moving.pop("cgpus")
    assert moving == {
        "lease_id": lease["id"],
        "kind": "idle",
        "connections": None,
        "stage": "starting",
    }
    (device,) = lease["devices"]
    assert cgpu["index"] == 0
    assert cgpu["from"] == {"gpu_uuid": device["gpu_uuid"], "gpu_host": device["gpu_host"]}
    assert cgpu["to"]["gpu_host"] == other_host(lease)
    assert world.engine.woken[-1] == (lease["id"], "operations")


def test_a_dry_run_says_the_same_and_does_nothing(world, lease):
    before = world.rows()
    response = move(world, lease, host=other_host(lease), dry_run=True)
    assert response.status_code == 200
    assert world.rows() == before
    asked = response.json["move"]
    assert asked["stage"] is None
    assert move(world, lease, host=other_host(lease)).json["move"] == asked | {"stage": "starting"}


def test_the_same_move_again_answers_with_that_which_is_under_way(world, lease):
    first = move(world, lease).json
    before = world.rows()
    assert move(world, lease).json == first
    assert world.rows() == before


def test_both_gpus_are_claimed_and_the_quota_counts_the_lease_once(world, lease):
    used = world.call("member", "GET", "/v1/limits").json
    moving = move(world, lease).json["move"]
    for side in ("from", "to"):
        uuid = moving["cgpus"][0][side]["gpu_uuid"]
        gpu = world.call("admin", "GET", f"/v1/gpus/{uuid}").json["gpu"]
        assert (gpu["used_mb"], gpu["leases"]) == (1024, [lease["id"]])
    assert world.call("member", "GET", "/v1/limits").json == used


def test_the_tenant_sees_that_it_moves_and_neither_gpus_nor_hosts(world, lease):
    move(world, lease)
    seen = shown(world, lease["id"], "member")
    event = seen["events"][-1]
    assert (event["event"], event["detail"]) == ("move", None)
    assert seen["devices"] == [
        {"index": 0, "masked_address": lease["devices"][0]["masked_address"], "memory_mb": 1024}
    ]
    detail = shown(world, lease["id"])["events"][-1]["detail"]
    assert detail.startswith("idle: cGPU 0 from GPU-")


def test_open_connections_refuse_a_move_unless_it_may_cut_them(world, lease):
    connect(world, lease, 2)
    before = world.rows()
    for dry_run in (True, False):
        error = only_error(move(world, lease, dry_run=dry_run))
        assert (error["status"], error["code"]) == (409, "gsaas.lease.connected")
        assert "2 open connections" in error["detail"]
    assert world.rows() == before
    moving = move(world, lease, force=True).json["move"]
    assert (moving["kind"], moving["connections"]) == ("cut", 2)


def test_a_lease_that_is_not_active_is_refused(world):
    claimed = world.launch("member", mode="shared", memory_mb=1024)
    assert "it is CLAIMED" in refusal(world, claimed)


def test_a_lease_whose_programs_know_real_addresses_is_refused(world):
    body = {"lease": {"cgpus": {"count": 1}, "server": None}}
    made = world.call("member", "POST", "/v1/leases", body).json["lease"]
    assert "real addresses" in refusal(world, made)


def test_the_new_gpu_is_one_that_the_request_allows(world):
    on_one = launched(world, host="gpu1")
    assert "for GPUs of gpu1 only" in refusal(world, on_one, host="gpu2")
    assert "fits" in refusal(world, on_one, gpu="GPU-0002-0")
    assert move(world, on_one).json["move"]["cgpus"][0]["to"]["gpu_host"] == "gpu1"


def test_a_local_lease_stays_local_and_a_remote_one_remote(world):
    local = launched(world, locality="local")
    assert "fits" in refusal(world, local, host=other_host(local))
    remote = launched(world, locality="remote")
    if remote["server"]["host"] != "compute1":
        assert "fits" in refusal(world, remote, host=remote["server"]["host"])


def test_cgpus_that_are_to_be_on_different_hosts_stay_so(world):
    spread = launched(world, count=2, hosts="spread")
    assert "fits" in refusal(world, spread, index=0, host=spread["devices"][1]["gpu_host"])
    together = launched(world, count=2, hosts="one")
    assert "fits" in refusal(world, together, index=0, host=other_host(together))
    both = move(world, together, host=other_host(together)).json["move"]
    assert {cgpu["to"]["gpu_host"] for cgpu in both["cgpus"]} == {other_host(together)}


def test_one_of_several_cgpus_moves_by_its_index(world):
    two = launched(world, count=2)
    moving = move(world, two, index=1).json["move"]
    assert [cgpu["index"] for cgpu in moving["cgpus"]] == [1]
    assert "it has no cGPU 7" in refusal(world, two, index=7)


def test_what_is_there_already_is_not_moved(world, lease):
    (device,) = lease["devices"]
    assert "there already" in refusal(world, lease, host=device["gpu_host"])
    assert "there already" in refusal(world, lease, gpu=device["gpu_uuid"])


def test_a_whole_gpu_is_replaced_by_a_whole_one(world):
    lease_id = world.launch("member")["id"]
    world.engine.settle()
    whole = shown(world, lease_id)
    moving = move(world, whole).json["move"]
    uuid = moving["cgpus"][0]["to"]["gpu_uuid"]
    gpu = world.call("admin", "GET", f"/v1/gpus/{uuid}").json["gpu"]
    assert (gpu["mode"], gpu["used_mb"]) == ("exclusive", 8192)


def test_a_gpu_that_is_in_use_or_disabled_is_refused(world, lease):
    target = "GPU-0002-3"
    body = {"gpu": {"disabled": True, "disabled_reason": "fans"}}
    world.call("admin", "PATCH", f"/v1/gpus/{target}", body)
    assert "fits" in refusal(world, lease, gpu=target)


def test_a_gpu_that_does_not_exist_is_named(world, lease):
    error = only_error(move(world, lease, gpu="GPU-none"))
    assert (error["status"], error["detail"]) == (404, "there is no GPU GPU-none")


def test_a_release_in_the_middle_returns_both(world, lease):
    move(world, lease)
    world.call("member", "DELETE", f"/v1/leases/{lease['id']}")
    world.engine.settle()
    assert shown(world, lease["id"])["status"] == "RELEASED"
    used = world.call("admin", "GET", "/v1/gpus").json["gpus"]
    assert {gpu["used_mb"] for gpu in used} == {0}


def test_an_older_microversion_has_no_moves(world, lease):
    path = f"/v1/leases/{lease['id']}/move"
    older = {"OpenStack-API-Version": "gpu-scheduling 1.10"}
    error = only_error(world.call("admin", "POST", path, {"move": {}}, headers=older))
    assert error["status"] == 400
    assert "1.11" in error["detail"]
