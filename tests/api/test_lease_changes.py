# SPDX-License-Identifier: Apache-2.0
"""Changes of a lease by its owner: its name, and its priority while it is in the queue."""

from __future__ import annotations

import pytest

from tests.api.world import World, only_error

NEWEST = {"OpenStack-API-Version": "gpu-scheduling latest"}


def change(world: World, lease_id: str, caller: str = "member", headers=NEWEST, **fields):
    path = f"/v1/leases/{lease_id}"
    return world.call(caller, "PATCH", path, {"lease": fields}, headers=headers)


def request_all(world: World, **fields) -> str:
    """Request all GPUs without a VM; return the lease's id."""
    lease = {"cgpus": {"count": 8}, "server": None, **fields}
    response = world.call("member", "POST", "/v1/leases", {"lease": lease})
    assert response.status_code in (201, 202), response.json
    return response.json["lease"]["id"]


def queue(world: World) -> list[str]:
    places = world.call("admin", "GET", "/v1/queue").json["places"]
    return [place["name"] for place in places]


def test_a_lease_gets_another_name_and_keeps_the_rest(world):
    before = world.launch("member")
    # The first microversion that has changes: later ones have fields that the launch did not ask for.
    first = {"OpenStack-API-Version": "gpu-scheduling 1.4"}
    after = change(world, before["id"], headers=first, name="training").json["lease"]
    assert after["updated_at"] > before["updated_at"]
    expected = before | {"name": "training", "updated_at": None}
    assert after | {"updated_at": None} == expected
    found = world.call("member", "GET", "/v1/leases?name=training").json["leases"]
    assert [lease["id"] for lease in found] == [before["id"]]


def test_a_request_in_the_queue_lets_others_pass(world):
    request_all(world)
    first = request_all(world, wait=600, name="first")
    request_all(world, wait=600, name="second")
    assert queue(world) == ["first", "second"]
    changed = change(world, first, priority=-1).json["lease"]
    assert (changed["priority"], changed["queue"]["position"]) == (-1, 2)
    assert queue(world) == ["second", "first"]


def test_a_request_that_was_passed_no_longer_stands_in_the_way(world):
    held = request_all(world, cgpus={"count": 4})
    large = request_all(world, wait=600)
    small = request_all(world, wait=600, cgpus={"count": 4})
    shown = change(world, large, priority=-1).json["lease"]
    assert shown["status"] == "QUEUED"
    assert world.call("member", "GET", f"/v1/leases/{small}").json["lease"]["status"] == "ACTIVE"
    assert held


def test_only_admins_let_a_request_overtake_others(world):
    request_all(world)
    lease_id = request_all(world, wait=600)
    before = world.rows()
    assert only_error(change(world, lease_id, priority=1))["code"] == "gsaas.forbidden"
    assert world.rows() == before
    assert change(world, lease_id, "admin", priority=1).json["lease"]["priority"] == 1


def test_the_priority_of_a_lease_that_has_its_gpus_cannot_change(world):
    lease_id = world.launch("member")["id"]
    before = world.rows()
    error = only_error(change(world, lease_id, name="x", priority=-1))
    assert (error["status"], error["code"]) == (409, "gsaas.lease.not-queued")
    assert "CLAIMED" in error["detail"]
    assert world.rows() == before


def test_a_released_lease_does_not_change(world):
    lease_id = request_all(world)
    world.call("member", "DELETE", f"/v1/leases/{lease_id}")
    error = only_error(change(world, lease_id, name="x"))
    assert (error["status"], error["code"]) == (404, "gsaas.lease.released")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"name": ""}, "lease.name"),
        ({"name": "two\nlines"}, "lease.name"),
        ({"priority": "high"}, "lease.priority"),
        ({"priority": 10**6}, "lease.priority"),
        ({"cgpus": {"count": 2}}, "cgpus"),
        ({"status": "ACTIVE"}, "status"),
    ],
)
def test_a_change_that_is_not_valid_names_the_field(world, fields, named):
    lease_id = world.launch("member")["id"]
    before = world.rows()
    error = only_error(change(world, lease_id, **fields))
    assert (error["status"], error["code"]) == (400, "gsaas.bad-request")
    assert named in error["detail"]
    assert world.rows() == before


def test_nothing_to_change_changes_nothing(world):
    lease_id = world.launch("member")["id"]
    before = world.rows()
    assert change(world, lease_id).status_code == 200
    assert world.rows() == before


def test_an_older_microversion_has_no_changes(world):
    lease_id = world.launch("member")["id"]
    older = {"OpenStack-API-Version": "gpu-scheduling 1.3"}
    error = only_error(change(world, lease_id, headers=older, name="x"))
    assert error["status"] == 400
    assert "1.4" in error["detail"]
