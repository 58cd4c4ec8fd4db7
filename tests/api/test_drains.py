# SPDX-License-Identifier: Apache-2.0
"""Hosts are drained, and owners of leases consent to moves: what is answered, what is refused, and what tenants see."""

from __future__ import annotations

from typing import Any

import pytest

from gsaas.engine.drains import Drains
from tests.api.test_moves import NEWEST, connect, launched, move, shown
from tests.api.test_moves import world as world
from tests.api.world import World, only_error

LATER = "2099-01-01T00:00:00Z"


def patch(world: World, name: str = "gpu1", caller: str = "admin", **fields: Any) -> Any:
    return world.call(caller, "PATCH", f"/v1/hosts/{name}", {"host": fields}, headers=NEWEST)


def drain(world: World, name: str = "gpu1", **how: Any) -> dict[str, Any]:
    response = patch(world, name, disabled=True, drain=how)
    assert response.status_code == 200, response.json
    return response.json["host"]


def host(world: World, name: str = "gpu1") -> dict[str, Any]:
    return world.call("admin", "GET", f"/v1/hosts/{name}", headers=NEWEST).json["host"]


def advance(world: World) -> None:
    """An engine does what is to be done now."""
    Drains(world.database, world.claims).audit()
    world.engine.settle()
    Drains(world.database, world.claims).audit()


def set_lease(world: World, lease: dict[str, Any], caller: str = "member", **fields: Any) -> Any:
    path = f"/v1/leases/{lease['id']}"
    return world.call(caller, "PATCH", path, {"lease": fields}, headers=NEWEST)


@pytest.fixture
def lease(world):
    """A lease with one cGPU on the first host."""
    return on(world, "gpu1")


def on(world: World, name: str) -> dict[str, Any]:
    made = launched(world)
    if made["devices"][0]["gpu_host"] != name:
        move(world, made, host=name)
        world.engine.settle()
    return shown(world, made["id"])


def test_the_leases_of_a_host_leave_it_and_the_answer_says_how_far_that_is(world, lease):
    begun = drain(world)
    assert begun["disabled"]
    assert begun["drain"]["by"] is None
    assert begun["drain"]["leases"] == [{"id": lease["id"], "waits": None}]
    connect(world, lease, 2)
    advance(world)
    waiting = [{"id": lease["id"], "waits": "2 connections are open"}]
    assert host(world)["drain"]["leases"] == waiting
    listed = world.call("admin", "GET", "/v1/hosts", headers=NEWEST).json["hosts"]
    assert {one["name"]: one["drain"] and one["drain"]["leases"] for one in listed} == {
        "gpu1": waiting,
        "gpu2": None,
        "compute1": None,
    }
    connect(world, lease, 0)
    advance(world)
    assert host(world)["drain"]["leases"] == []
    assert shown(world, lease["id"])["devices"][0]["gpu_host"] == "gpu2"


def test_with_force_connections_are_cut_at_once(world, lease):
    connect(world, lease, 1)
    drain(world, force=True)
    advance(world)
    assert host(world)["drain"]["leases"] == []


def test_owners_know_when_their_connections_are_cut(world, lease):
    assert shown(world, lease["id"], "member")["cut_at"] is None
    drain(world, by=LATER)
    seen = shown(world, lease["id"], "member")
    assert seen["cut_at"] == "2099-01-01T00:00:00.000000Z"
    assert (seen["events"][-1]["event"], seen["events"][-1]["detail"]) == ("drain", None)
    patch(world, disabled=False)
    seen = shown(world, lease["id"], "member")
    assert (seen["cut_at"], seen["events"][-1]["event"]) == (None, "drain-cancelled")


def test_enabling_and_disabling_a_host_ends_its_drain(world, lease):
    for disabled in (False, True):
        drain(world)
        after = patch(world, disabled=disabled).json["host"]
        assert (after["disabled"], after["drain"]) == (disabled, None)
    advance(world)
    assert shown(world, lease["id"])["devices"][0]["gpu_host"] == "gpu1"


def test_a_host_without_gpus_is_not_drained(world):
    before = world.rows()
    error = only_error(patch(world, "compute1", disabled=True, drain={}))
    assert (error["status"], error["code"]) == (409, "gsaas.host.without-gpus")
    assert "Nova" in error["detail"]
    assert world.rows() == before


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"disabled": False, "drain": {}}, "host.disabled"),
        ({"disabled": True, "drain": {"force": True, "by": LATER}}, "leave one out"),
        ({"disabled": True, "drain": {"by": "2026-02-30"}}, "host.drain.by"),
    ],
)
def test_what_contradicts_itself_is_refused(world, fields, why):
    before = world.rows()
    error = only_error(patch(world, **fields))
    assert error["status"] == 400
    assert why in error["detail"]
    assert world.rows() == before


def test_only_administrators_drain_hosts_and_only_since_this_microversion(world):
    assert only_error(patch(world, caller="member", disabled=True, drain={}))["status"] == 403
    body = {"host": {"disabled": True, "drain": {}}}
    older = {"OpenStack-API-Version": "gpu-scheduling 1.10"}
    answer = world.call("admin", "PATCH", "/v1/hosts/gpu1", body, headers=older)
    assert only_error(answer)["status"] == 400
    assert "drain" not in world.call("admin", "GET", "/v1/hosts/gpu1", headers=older).json["host"]


# Consent


def test_a_lease_that_is_movable_by_a_cut_moves_without_force(world, lease):
    connect(world, lease, 2)
    assert only_error(move(world, lease))["code"] == "gsaas.lease.connected"
    assert set_lease(world, lease, movable="cut").json["lease"]["movable"] == "cut"
    moving = move(world, lease).json["move"]
    assert (moving["kind"], moving["connections"]) == ("cut", 2)


def test_a_consent_is_given_at_the_launch_and_withdrawn_later(world):
    body = {"lease": {"cgpus": {"count": 1}, "movable": "cut"}}
    made = world.call("member", "POST", "/v1/leases", body, headers=NEWEST).json["lease"]
    assert made["movable"] == "cut"
    assert set_lease(world, made, movable="idle").json["lease"]["movable"] == "idle"
    assert shown(world, made["id"])["movable"] == "idle"


def test_a_lease_is_movable_while_idle_unless_its_owner_says_otherwise(world, lease):
    assert lease["movable"] == "idle"


def test_operators_cannot_consent_for_a_tenant_of_another_project(world, lease):
    assert set_lease(world, lease, "stranger", movable="cut").status_code == 404


def test_a_drain_cuts_those_who_consent_and_waits_for_the_others(world, lease):
    other = on(world, "gpu1")
    for one in (lease, other):
        connect(world, one, 1)
    set_lease(world, lease, movable="cut")
    drain(world)
    advance(world)
    assert [one["id"] for one in host(world)["drain"]["leases"]] == [other["id"]]
