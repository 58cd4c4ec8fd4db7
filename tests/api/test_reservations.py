# SPDX-License-Identifier: Apache-2.0
"""Projects reserve cGPUs for a time to come, and launch leases in their reservations."""

from __future__ import annotations

import datetime
import json

import pytest
import sqlalchemy
from oslo_utils import timeutils

from gsaas.api.auth import HEADER
from gsaas.context import RequestContext
from gsaas.db import models
from tests.api.world import World, only_error

NEWEST = {"OpenStack-API-Version": "gpu-scheduling latest"}
WHOLE = {"count": 8}


def at(hours: float) -> str:
    return (timeutils.utcnow() + datetime.timedelta(hours=hours)).isoformat() + "Z"


def call(world: World, method: str, path: str, body=None, caller: str = "member", headers=NEWEST):
    return world.call(caller, method, path, body, headers=headers)


def reserve(world: World, begins=None, ends=5, caller: str = "member", **cgpus):
    body = {"cgpus": cgpus or WHOLE, "end": at(ends)}
    if begins is not None:
        body["start"] = at(begins)
    return call(world, "POST", "/v1/reservations", {"reservation": body}, caller)


def reserved(world: World, *args, **more) -> str:
    response = reserve(world, *args, **more)
    assert response.status_code == 201, response.json
    assert response.headers["Location"].endswith(response.json["reservation"]["id"])
    return response.json["reservation"]["id"]


def shown(world: World, reservation_id: str) -> dict:
    return call(world, "GET", f"/v1/reservations/{reservation_id}").json["reservation"]


def launch(world: World, reservation_id: str, caller: str = "member", **more):
    lease = {"cgpus": {"count": 2}, "server": None, "reservation": reservation_id, **more}
    return call(world, "POST", "/v1/leases", {"lease": lease}, caller)


def test_a_reservation_is_shown_to_its_project_and_to_nobody_else(world):
    reservation_id = reserved(world, 2, 5, count=2, mode="shared", memory_mb=1000)
    one = shown(world, reservation_id)
    assert (one["status"], one["kept"], one["lease_ids"]) == ("PENDING", 0, [])
    assert one["cgpus"]["memory_mb"] == 1000
    assert call(world, "GET", "/v1/reservations").json["reservations"] == [one]
    everything = "/v1/reservations?all_projects=true"
    assert len(call(world, "GET", everything, caller="admin").json["reservations"]) == 1
    for method in ("GET", "DELETE"):
        answer = call(world, method, f"/v1/reservations/{reservation_id}", caller="stranger")
        assert answer.status_code == 404
    assert not any(word in json.dumps(one) for word in ("GPU-", "gpu1", "gpu2"))


def test_a_service_that_may_see_all_reservations_cancels_none_of_another_project(tmp_path):
    """Nova's own user is a member of the project of services, in most clouds."""

    def caller(request) -> RequestContext:
        member = "member" in request.headers[HEADER]
        project, roles = ("blue", ["member"]) if member else ("services", ["service", "member"])
        return RequestContext.of(user_id="u", project_id=project, roles=roles)

    world = World.build(tmp_path, authenticate=caller)
    path = f"/v1/reservations/{reserved(world)}"
    assert call(world, "GET", path, caller="service").status_code == 200
    assert call(world, "DELETE", path, caller="service").status_code == 403
    assert call(world, "GET", path).json["reservation"]["status"] == "ACTIVE"


def listed(world: World, query: str, caller: str = "member") -> list[list[str]]:
    """Return the names on each page, following the links."""
    pages, path = [], f"/v1/reservations?{query}"
    while path:
        response = call(world, "GET", path, caller=caller)
        assert response.status_code == 200, response.json
        pages.append([one["name"] for one in response.json["reservations"]])
        links = {one["rel"]: one["href"] for one in response.json.get("reservations_links", [])}
        path = links.get("next", "")
    return pages


def test_reservations_are_listed_page_by_page_in_the_order_that_is_asked_for(world):
    for name, begins in (("c", 2), ("a", 3), ("b", 4)):
        body = {"cgpus": {"count": 1}, "name": name, "start": at(begins), "end": at(begins + 1)}
        assert call(world, "POST", "/v1/reservations", {"reservation": body}).status_code == 201
    assert listed(world, "limit=2") == [["c", "a"], ["b"]]
    assert listed(world, "limit=1&sort_key=name") == [["a"], ["b"], ["c"]]
    assert listed(world, "limit=2&sort_key=end&sort_dir=desc&status=PENDING") == [["b", "a"], ["c"]]
    assert listed(world, "limit=2&all_projects=true", "admin") == [["c", "a"], ["b"]]


def test_no_page_begins_after_a_reservation_of_another_project(world):
    foreign = reserved(world, 2, 5, caller="stranger", count=1)
    for marker in (foreign, "none"):
        answer = call(world, "GET", f"/v1/reservations?marker={marker}")
        assert only_error(answer)["detail"] == f"the marker {marker} is not a reservation"


def test_two_that_do_not_fit_at_once_are_not_both_admitted(world):
    reserved(world, 2, 5)
    error = only_error(reserve(world, 4, 6, caller="stranger"))
    assert (error["status"], error["code"]) == (409, "gsaas.capacity.busy")
    reserved(world, 5, 6)


def test_a_cancelled_reservation_makes_room_for_others(world):
    reservation_id = reserved(world, 2, 5)
    answer = call(world, "DELETE", f"/v1/reservations/{reservation_id}")
    assert answer.json["reservation"]["status"] == "CANCELLED"
    assert call(world, "GET", "/v1/reservations").json["reservations"] == []
    reserved(world, 2, 5)


def test_its_project_launches_in_it_while_others_are_refused(world):
    reservation_id = reserved(world)
    world.claims.reservations.audit()
    assert (shown(world, reservation_id)["status"], shown(world, reservation_id)["kept"]) == (
        "ACTIVE",
        8,
    )
    error = only_error(
        call(world, "POST", "/v1/leases", {"lease": {"cgpus": {"count": 1}, "server": None}})
    )
    assert error["gsaas"]["filters"] == [{"filter": "reservation", "gpus": 8}]
    lease = launch(world, reservation_id).json["lease"]
    assert lease["reservation"] == reservation_id
    assert shown(world, reservation_id)["lease_ids"] == [lease["id"]]
    assert launch(world, reservation_id, caller="stranger").status_code == 404


def test_a_vm_is_launched_at_once_in_a_reservation_that_begins_now(world):
    reservation_id = reserved(world)
    answer = call(
        world,
        "POST",
        "/v1/leases",
        {"lease": {"cgpus": {"count": 2}, "reservation": reservation_id}},
    )
    assert answer.status_code == 202
    world.engine.settle()
    lease = call(world, "GET", f"/v1/leases/{answer.json['lease']['id']}").json["lease"]
    assert lease["status"] == "ACTIVE"


def test_nobody_launches_in_a_reservation_before_its_beginning(world):
    error = only_error(launch(world, reserved(world, 2, 5)))
    assert (error["status"], error["code"]) == (409, "gsaas.reservation.not-active")


@pytest.mark.parametrize(
    "body",
    [
        {"cgpus": {"count": 1}, "start": at(3), "end": at(2)},
        {"cgpus": {"count": 1}, "end": "2020-01-01"},
        {"cgpus": {"count": 1}, "end": "2040-02-30"},
        {"cgpus": {"count": 1, "policy": "first-fit"}, "end": "2040-02-03"},
        {"cgpus": {"count": 1}},
    ],
)
def test_a_reservation_that_cannot_be_is_refused(world, body):
    answer = call(world, "POST", "/v1/reservations", {"reservation": body})
    assert answer.status_code == 400


def test_a_project_has_only_so_many_reservations(world):
    for _ in range(5):
        reserved(world, 2, 5, count=1, mode="shared", memory_mb=10)
    error = only_error(reserve(world, 2, 5, count=1, mode="shared", memory_mb=10))
    assert error["code"] == "gsaas.quota.exceeded"
    assert len(world.rows()[models.ReservationRow.__tablename__]) == 5


def test_a_launch_in_a_reservation_does_not_wait(world):
    assert launch(world, reserved(world), wait=None).status_code == 400


def check(world: World, reservation_id: str, caller: str = "member", **cgpus) -> dict:
    body = {"check": {"count": 2, "reservation": reservation_id, **cgpus}}
    answer = call(world, "POST", "/v1/checks", body, caller)
    assert answer.status_code == 200, answer.json
    return answer.json["check"]


def test_a_check_in_a_reservation_says_what_a_launch_would_and_claims_nothing(world):
    reservation_id = reserved(world)
    world.claims.reservations.audit()
    assert check(world, reservation_id)["devices"] == [{"memory_mb": 8192}] * 2
    launch(world, reservation_id, cgpus={"count": 7})
    before = world.rows()
    busy, never = (check(world, reservation_id, count=count) for count in (2, 9))
    assert (busy["code"], never["code"]) == ("gsaas.capacity.busy", "gsaas.capacity.impossible")
    assert (busy["nearest"]["count"], never["nearest"]["count"]) == (1, 1)
    assert world.rows() == before
    for count, checked in ((2, busy), (9, never)):
        error = only_error(launch(world, reservation_id, cgpus={"count": count}))
        assert (error["code"], error["detail"]) == (checked["code"], checked["reason"])


def test_a_check_in_a_reservation_says_when_this_begins_or_that_it_is_over(world):
    reservation_id = reserved(world, 2, 5)
    for status in ("PENDING", "CANCELLED"):
        answer = check(world, reservation_id)
        error = only_error(launch(world, reservation_id))
        assert (answer["fits"], answer["code"]) == (False, "gsaas.reservation.not-active")
        assert answer["reason"] == error["detail"]
        assert f"is {status}" in answer["reason"]
        call(world, "DELETE", f"/v1/reservations/{reservation_id}")


def test_a_check_in_a_reservation_respects_the_quota(tmp_path):
    world = World.build(tmp_path, settings="[quotas]\ncgpus = 2\n")
    try:
        reservation_id = reserved(world, count=2)
        world.claims.reservations.audit()
        call(world, "POST", "/v1/leases", {"lease": {"cgpus": {"count": 1}, "server": None}})
        assert check(world, reservation_id)["code"] == "gsaas.quota.exceeded"
    finally:
        world.database.close()


def test_a_check_in_no_reservation_of_the_project_is_refused_as_the_launch_is(world):
    reservation_id = reserved(world)
    unlike = {"count": 1, "mode": "shared", "memory_mb": 10}
    for caller, wanted, status in (("stranger", {"count": 1}, 404), ("member", unlike, 400)):
        body = {"check": {**wanted, "reservation": reservation_id}}
        error = only_error(call(world, "POST", "/v1/checks", body, caller))
        refusal = only_error(launch(world, reservation_id, caller, cgpus=wanted))
        assert (error["status"], error["detail"]) == (status, refusal["detail"])


def test_the_microversion_before_has_no_checks_in_reservations(world):
    before = {"OpenStack-API-Version": "gpu-scheduling 1.7"}
    body = {"check": {"count": 1, "reservation": reserved(world)}}
    error = only_error(call(world, "POST", "/v1/checks", body, headers=before))
    assert (error["status"], "1.8" in error["detail"]) == (400, True)


def test_the_microversion_before_has_no_reservations(world):
    before = {"OpenStack-API-Version": "gpu-scheduling 1.6"}
    assert call(world, "GET", "/v1/reservations", headers=before).status_code == 400
    body = {"lease": {"cgpus": {"count": 2}, "server": None, "reservation": "r"}}
    assert call(world, "POST", "/v1/leases", body, headers=before).status_code == 400


def disable(world: World, uuid: str) -> None:
    body = {"gpu": {"disabled": True}}
    assert world.call("admin", "PATCH", f"/v1/gpus/{uuid}", body).status_code == 200


def test_a_reservation_whose_gpu_is_out_of_service_is_degraded_until_it_has_moved(world):
    reservation_id = reserved(world, count=8)
    world.claims.reservations.audit()
    assert shown(world, reservation_id)["degraded"] is False
    gpus = sorted(row[0] for row in world.rows()[models.GpuRow.__tablename__])
    disable(world, gpus[0])
    world.claims.reservations.audit()
    one = shown(world, reservation_id)
    assert (one["degraded"], one["kept"]) == (True, 8)
    assert "degraded_reasons" not in one
    path = f"/v1/reservations/{reservation_id}"
    told = call(world, "GET", path, caller="admin").json["reservation"]["degraded_reasons"]
    assert len(told) == 1
    assert gpus[0] in told[0]
    assert "is disabled" in told[0]

    call(world, "DELETE", path)
    assert shown(world, reservation_id)["degraded"] is False
    first = reserved(world, count=1)
    world.claims.reservations.audit()
    [uuid] = [
        row.gpu_uuid
        for row in rows_of(world, models.ReservedShareRow)
        if row.reservation_id == first
    ]
    disable(world, uuid)
    assert shown(world, first)["degraded"] is True
    world.claims.reservations.audit()
    assert (shown(world, first)["degraded"], shown(world, first)["kept"]) == (False, 1)


def rows_of(world: World, kind):
    with world.database.read() as session:
        return list(session.scalars(sqlalchemy.select(kind)))


def test_the_commands_reserve_list_launch_and_cancel(desk):
    made = desk.read("reserve", "-ncgpus=2", f"-end={at(5)}", "-name=course")
    assert (made["name"], made["cgpus"]["count"]) == ("course", 2)
    desk.world.claims.reservations.audit()
    assert desk.read("reservations")[0]["kept"] == 2
    assert made["id"] in desk.type("reservations")[1]
    status, out, err = desk.type("alloc", "-ncgpus=1", f"-reservation={made['id']}", "-f", "json")
    assert status == 0, err
    lease_id = json.loads(out)["lease"]["id"]
    assert shown(desk.world, made["id"])["lease_ids"] == [lease_id]
    assert "CANCELLED" in desk.type("unreserve", made["id"])[1]
    assert desk.type("reservations")[1].strip() == "no reservations"


def test_administrators_see_how_much_of_a_gpu_is_kept_for_reservations(desk):
    desk.type("reserve", "-ncgpus=1", f"-end={at(5)}", "-mode=shared", "-poolmem=4096")
    path = "/v1/gpus/GPU-0001-0"
    (kept,) = {
        gpu["reserved_mb"]
        for gpu in call(desk.world, "GET", "/v1/gpus", caller="admin").json["gpus"]
        if gpu["reserved_mb"]
    }
    assert kept == 4096
    before = {"OpenStack-API-Version": "gpu-scheduling 1.6"}
    older = call(desk.world, "GET", path, caller="admin", headers=before).json["gpu"]
    assert "reserved_mb" not in older
    desk.sit("admin")
    assert desk.type("gpus")[1].count("free, 4096 MiB reserved") == 1


def test_the_list_of_the_commands_says_which_reservations_are_degraded(desk):
    desk.type("reserve", "-ncgpus=8", f"-end={at(5)}")
    assert "degraded" not in desk.type("reservations")[1]
    disable(desk.world, sorted(row[0] for row in desk.world.rows()["gpus"])[0])
    assert "ACTIVE, degraded" in desk.type("reservations")[1]


def test_the_command_checks_in_a_reservation(desk):
    made = desk.read("reserve", "-ncgpus=2", f"-end={at(5)}")
    desk.world.claims.reservations.audit()
    within = f"-reservation={made['id']}"
    status, out, _ = desk.type("check", "-ncgpus=2", within)
    assert status == 0
    assert out.strip() == f"it fits: gsaas -l -ncgpus=2 {within}"
    status, out, _ = desk.type("check", "-ncgpus=3", within)
    assert status == 4
    assert f"it can never fit: reservation {made['id']} has only 2 cGPUs" in out
    assert "this would fit now: -ncgpus=2" in out
    desk.type("unreserve", made["id"])
    status, out, _ = desk.type("check", "-ncgpus=2", within)
    assert status == 1
    assert f"it does not fit now: reservation {made['id']} is CANCELLED" in out
    assert desk.type("check", "-ncgpus=2")[0] == 0


def test_a_new_reservation_says_how_to_launch_in_it(desk):
    out = desk.type("reserve", "-ncgpus=1", "-mode=shared", "-poolmem=100", f"-end={at(5)}")[1]
    assert "gsaas -l -ncgpus=1 -poolmem=100 -mode=shared -reservation=" in out


def test_the_list_of_the_commands_is_sorted(desk):
    for name in ("b", "a"):
        desk.type("reserve", "-ncgpus=1", f"-end={at(5)}", f"-name={name}")
    assert [one["name"] for one in desk.read("reservations", "-sort=name")] == ["a", "b"]
    assert [one["name"] for one in desk.read("reservations", "-sort=name:desc")] == ["b", "a"]


def test_a_reservation_needs_an_end(desk):
    assert desk.type("reserve", "-ncgpus=1")[0] == 2
