# SPDX-License-Identifier: Apache-2.0
"""Projects reserve cGPUs for a time to come, and launch leases in their reservations."""

from __future__ import annotations

import datetime
import json
import re

import pytest
import sqlalchemy
from oslo_utils import timeutils

import gsaas.conf
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
    world = World.build(tmp_path, settings="[quotas]\nleases = 1\n")
    try:
        reservation_id = reserved(world, count=2)
        world.claims.reservations.audit()
        call(world, "POST", "/v1/leases", {"lease": {"cgpus": {"count": 1}, "server": None}})
        assert check(world, reservation_id)["code"] == "gsaas.quota.exceeded"
    finally:
        world.database.close()


@pytest.fixture
def four(tmp_path):
    """A cloud of eight GPUs, of which each project may have four."""
    made = World.build(tmp_path, settings="[quotas]\ncgpus = 4\n")
    yield made
    made.database.close()


def cgpus_used(world: World, caller: str = "member") -> int:
    return world.call(caller, "GET", "/v1/limits").json["limits"]["cgpus"]["used"]


def allocate(world: World, count: int, caller: str = "member"):
    body = {"lease": {"cgpus": {"count": count}, "server": None}}
    return call(world, "POST", "/v1/leases", body, caller)


def test_leases_and_reservations_have_one_quota(four):
    assert allocate(four, 3).status_code == 201
    error = only_error(reserve(four, 2, 5, count=2))
    assert (error["status"], error["code"]) == (403, "gsaas.quota.exceeded")
    assert error["gsaas"]["quotas"] == [{"name": "cgpus", "used": 3, "asked": 2, "limit": 4}]
    reserved(four, 2, 5, count=1)
    assert cgpus_used(four) == 4
    error = only_error(allocate(four, 1))
    assert (error["status"], error["code"]) == (403, "gsaas.quota.exceeded")
    assert "4 of at most 4 in use, 1 of them reserved" in error["detail"]
    check = call(four, "POST", "/v1/checks", {"check": {"count": 1}}).json["check"]
    assert check["code"] == "gsaas.quota.exceeded"
    assert allocate(four, 4, "stranger").status_code == 201


def test_what_a_lease_has_of_a_reservation_counts_once(four):
    reservation_id = reserved(four, count=4)
    assert (shown(four, reservation_id)["kept"], cgpus_used(four)) == (4, 4)
    lease = launch(four, reservation_id, cgpus={"count": 3}).json["lease"]
    assert cgpus_used(four) == 4
    assert launch(four, reservation_id, cgpus={"count": 1}).status_code == 201
    assert cgpus_used(four) == 4
    call(four, "DELETE", f"/v1/leases/{lease['id']}")
    assert cgpus_used(four) == 4  # it is kept for the next one


def test_leases_that_outlive_their_reservation_keep_counting(four):
    reservation_id = reserved(four, count=4)
    assert launch(four, reservation_id, cgpus={"count": 4}).status_code == 201
    call(four, "DELETE", f"/v1/reservations/{reservation_id}")
    assert cgpus_used(four) == 4
    assert only_error(reserve(four, count=1))["code"] == "gsaas.quota.exceeded"


def test_a_request_waits_while_a_reservation_has_the_quota(four):
    reservation_id = reserved(four, 2, 5, count=4)
    body = {"lease": {"cgpus": {"count": 1}, "server": None, "wait": None}}
    lease_id = call(four, "POST", "/v1/leases", body).json["lease"]["id"]
    four.claims.run_audit()
    assert call(four, "GET", f"/v1/leases/{lease_id}").json["lease"]["status"] == "QUEUED"
    call(four, "DELETE", f"/v1/reservations/{reservation_id}")
    assert call(four, "GET", f"/v1/leases/{lease_id}").json["lease"]["status"] == "ACTIVE"


def test_a_launch_in_a_reservation_from_before_one_quota_is_granted(four):
    """Releases before counted leases and reservations apart: each of them up to the quota."""
    reservation_id = reserved(four, count=4)
    four.conf.set_override("cgpus", -1, "quotas")
    assert allocate(four, 2).status_code == 201
    four.conf.set_override("cgpus", 4, "quotas")
    assert cgpus_used(four) == 6
    assert launch(four, reservation_id, cgpus={"count": 2}).status_code == 201
    assert allocate(four, 1).status_code == 403


@pytest.fixture
def bounded(tmp_path):
    """A cloud with reservations of at most two days, which begin within five."""
    settings = "[quotas]\nreservation_days = 2\nreservation_days_ahead = 5\n"
    made = World.build(tmp_path, settings=settings)
    yield made
    made.database.close()


def test_a_reservation_has_a_longest_duration_and_a_horizon(bounded):
    reserved(bounded, 24 * 5 - 1, 24 * 7 - 1)
    for begins, ends, name, asked, limit in (
        (1, 24 * 2 + 3, "reservation_days", 3, 2),
        (None, 24 * 365 * 7000, "reservation_days", 2555000, 2),
        (24 * 5 + 2, 24 * 6, "reservation_days_ahead", 6, 5),
    ):
        error = only_error(reserve(bounded, begins, ends))
        assert (error["status"], error["code"]) == (403, "gsaas.quota.exceeded")
        row = {"name": name, "used": 0, "asked": asked, "limit": limit}
        assert error["gsaas"] == {"quotas": [row]}
        assert f"{asked} days, and at most {limit} are allowed" in error["detail"]


def test_a_reservation_may_have_the_longest_duration_by_a_clock_that_is_fast(bounded):
    """Also the two days in which summer time ends, which have 49 hours."""
    reserved(bounded, None, 24 * 2 + 0.01, count=1)
    reserved(bounded, 1, 24 * 2 + 2, count=1)


def test_by_default_reservations_last_a_month_and_begin_within_three(tmp_path):
    quotas = gsaas.conf.load(files=[]).quotas
    assert (quotas.reservation_days, quotas.reservation_days_ahead) == (30, 90)


@pytest.mark.parametrize("begins", ["2020-01-01T10:00:00Z", "2020-01-01", "2020-01-01 10:00"])
def test_nothing_is_reserved_from_a_time_in_the_past(world, begins):
    body = {"cgpus": {"count": 1}, "start": begins, "end": "2040-12-31"}
    error = only_error(call(world, "POST", "/v1/reservations", {"reservation": body}))
    assert error["status"] == 400
    assert f'reservation.start is "{begins}", which is in the past' in error["detail"]
    assert re.search("it is [0-9-]{10} [0-9:]{5} UTC now", error["detail"])
    assert world.rows()[models.ReservationRow.__tablename__] == []


def test_a_beginning_is_now_if_clocks_differ_by_seconds(world):
    made = reserve(world, -30 / 3600, 5, count=1)
    assert made.json["reservation"]["status"] == "ACTIVE"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2040-12-01 10:00", "2040-12-01T10:00:00"),
        ("2040-12-01T10:00:00.000000", "2040-12-01T10:00:00"),
        ("2040-12-01T10:00:00.123456789Z", "2040-12-01T10:00:00.123456"),
        ("2040-12-01T10:00:00.123456789+01:00", "2040-12-01T09:00:00.123456"),
        ("2040-12-01 10:00:00.5 +0000 UTC", "2040-12-01T10:00:00.5"),
        ("2040-12-01 10:00:00 +0100 CET", "2040-12-01T09:00:00"),
        ("2040-12-01 10:00:00 UTC", "2040-12-01T10:00:00"),
        ("2040-12-01t10:00z", "2040-12-01T10:00:00"),
        ("2040-12-01 10:00-0330", "2040-12-01T13:30:00"),
        ("2040-12-01T10:00:00+01", "2040-12-01T09:00:00"),
        ("2040-12-01", "2040-12-01T00:00:00"),
    ],
)
def test_a_time_is_taken_as_other_programs_write_it(world, written, meant):
    body = {"cgpus": {"count": 1}, "start": written, "end": "2040-12-31"}
    made = call(world, "POST", "/v1/reservations", {"reservation": body})
    assert made.status_code == 201, made.json
    found = datetime.datetime.fromisoformat(made.json["reservation"]["start"])
    assert found == datetime.datetime.fromisoformat(meant + "+00:00")


@pytest.mark.parametrize(
    "written",
    ["01/12/2040", "1.12.2040 10:00", "2238000000", 2238000000, "tomorrow", "2040-12-01 10", ""]
    + ["2040-12-01T10:00:00 PM", "2040-12-01 10:00 CET", "2040-12-01T10:00:00Z\n"],
)
def test_a_time_that_is_not_plain_is_refused_with_examples(world, written):
    for field in ("start", "end"):
        body = {"cgpus": {"count": 1}, "end": "2040-12-31", field: written}
        error = only_error(call(world, "POST", "/v1/reservations", {"reservation": body}))
        assert error["status"] == 400
        assert (
            f"reservation.{field} is {json.dumps(written)}; it must be a date such as "
            in (error["detail"])
        )
        assert "2026-11-01T12:00:00Z" in error["detail"]
        assert "must be text" not in error["detail"]


def test_other_times_of_requests_are_taken_alike(world):
    for query in ("leases?changes-since=", "usage?start="):
        for written in (
            "2026-11-01 10:00",
            "2026-11-01T10:00:00.123456789Z",
            "2026-11-01T10:00-02",
        ):
            assert call(world, "GET", f"/v1/{query}{written}").status_code == 200
        error = only_error(call(world, "GET", f"/v1/{query}yesterday"))
        assert "it must be a date such as 2026-11-01, or a time such as" in error["detail"]


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
    heading, row = desk.type("reservations")[1].splitlines()
    assert heading.split() == ["id", "name", "status", "cGPUs", "each", "from", "for", "kept"]
    assert (row.split()[0], row.split()[-2:]) == (made["id"][:8], ["5h", "2"])
    assert made["id"] in desk.type("reservations", "-c", "id")[1]
    status, out, err = desk.type("alloc", "-ncgpus=1", f"-reservation={made['id']}", "-f", "json")
    assert status == 0, err
    lease_id = json.loads(out)["lease"]["id"]
    assert shown(desk.world, made["id"])["lease_ids"] == [lease_id]
    assert "CANCELLED" in desk.type("unreserve", made["id"])[1]
    assert desk.type("reservations")[1].strip() == "no reservations"


def test_a_reservation_is_found_by_its_name_and_by_the_beginning_of_its_id(desk):
    made = desk.read("reserve", "-ncgpus=2", f"-end={at(5)}", "-name=course")
    desk.world.claims.reservations.audit()
    for called in ("course", made["id"][:8]):
        assert desk.read("reservation", called)["id"] == made["id"]
    assert desk.read("reservation", "show", "course")["id"] == made["id"]
    assert made["id"] in desk.type("reservation", "course")[1]
    assert desk.type("check", "-ncgpus=2", "-reservation=course")[0] == 0
    assert desk.type("alloc", "-ncgpus=1", "-reservation=course", "-f", "json")[0] == 0
    assert "CANCELLED" in desk.type("unreserve", "course")[1]
    assert desk.read("reservation", "course")["status"] == "CANCELLED"
    status, _, err = desk.type("unreserve", "course")
    assert (status, err) == (
        1,
        "gsaas: there is no reservation course; gsaas reservations lists yours\n",
    )
    assert desk.type("reservation")[0] == 2


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
    assert desk.type("gpus")[1].count("free, 4096 reserved") == 1


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


def hints(out: str) -> list[str]:
    """The commands under a reservation."""
    return [line.split("  ")[1] for line in out.splitlines() if line.startswith("  gsaas ")]


def test_a_reservation_says_how_to_launch_in_it_and_to_cancel_it_by_its_name(desk):
    shared = ("reserve", "-ncgpus=1", "-poolmem=100", f"-end={at(5)}", "-name=course")
    made = [
        "gsaas -l -ncgpus=1 -poolmem=100 -reservation=course",
        "gsaas unreserve course",
    ]
    assert hints(desk.type(*shared)[1]) == made
    assert hints(desk.type("reservation", "course")[1]) == made
    launch = desk.type("check", *made[0].split()[2:])
    assert launch[0] == 0, launch


def test_a_reservation_is_called_by_its_id_where_its_name_does_not_tell_it_apart(desk):
    for name in ("course", "course", "two words"):
        one = desk.read("reserve", "-ncgpus=1", f"-end={at(5)}", f"-name={name}")
        assert hints(desk.type("reservation", one["id"])[1])[1] == (
            "gsaas unreserve course"
            if len(desk.read("reservations")) == 1
            else f"gsaas unreserve {one['id']}"
        )


def test_what_is_over_has_no_command_that_comes_next(desk):
    desk.read("reserve", "-ncgpus=1", f"-end={at(5)}", "-name=course")
    desk.type("unreserve", "course")
    assert hints(desk.type("reservation", "course")[1]) == []


def change(world: World, reservation_id: str, caller: str = "member", headers=NEWEST, **fields):
    path = f"/v1/reservations/{reservation_id}"
    return call(world, "PATCH", path, {"reservation": fields}, caller, headers)


def test_a_reservation_gets_another_name_and_keeps_the_rest(world):
    reservation_id = reserved(world)
    before = shown(world, reservation_id)
    after = change(world, reservation_id, name="course").json["reservation"]
    assert after == before | {"name": "course"} == shown(world, reservation_id)
    assert change(world, reservation_id).json["reservation"] == after


@pytest.mark.parametrize(
    ("caller", "fields", "status"),
    [
        ("member", {"name": ""}, 400),
        ("member", {"name": "two\nlines"}, 400),
        ("member", {"end": "2040-01-01"}, 400),
        ("stranger", {"name": "x"}, 404),
        ("reader", {"name": "x"}, 403),
    ],
)
def test_a_change_that_is_not_valid_or_not_allowed_changes_nothing(world, caller, fields, status):
    reservation_id = reserved(world)
    before = world.rows()
    assert change(world, reservation_id, caller, **fields).status_code == status
    assert world.rows() == before


def test_the_microversion_before_has_no_changes_of_reservations(world):
    before = {"OpenStack-API-Version": "gpu-scheduling 1.10"}
    error = only_error(change(world, reserved(world), headers=before, name="x"))
    assert (error["status"], "1.11" in error["detail"]) == (400, True)


def test_the_command_gives_a_reservation_another_name(desk):
    made = desk.read("reserve", "-ncgpus=1", f"-end={at(5)}", "-name=course")
    status, out, _ = desk.type("reservation", "set", "course", "-name=lecture")
    assert (status, "gsaas unreserve lecture" in out) == (0, True)
    assert hints(out)[0] == "gsaas -l -ncgpus=1 -reservation=lecture"
    assert desk.read("reservation", "lecture", "-name=seminar")["id"] == made["id"]
    assert [one["name"] for one in desk.read("reservations")] == ["seminar"]
    status, _, err = desk.type("reservation", "set", "seminar")
    assert (status, "nothing to change: give -name" in err) == (2, True)


def test_the_list_of_the_commands_is_sorted(desk):
    for name in ("b", "a"):
        desk.type("reserve", "-ncgpus=1", f"-end={at(5)}", f"-name={name}")
    assert [one["name"] for one in desk.read("reservations", "-sort=name")] == ["a", "b"]
    assert [one["name"] for one in desk.read("reservations", "-sort=name:desc")] == ["b", "a"]


def test_a_reservation_needs_an_end(desk):
    assert desk.type("reserve", "-ncgpus=1")[0] == 2


def test_a_reservation_keeps_gpus_that_one_daemon_can_serve(tmp_path):
    """As LUPINE's clients need it: on one host, each on a GPU of its own."""
    world = World.build(tmp_path, driver="lupine", own_daemons=True)
    wanted = {"count": 2, "mode": "shared", "memory_mb": 1000}
    reservation_id = reserved(world, **wanted)
    assert "one_daemon" not in shown(world, reservation_id)["cgpus"]
    lease_id = launch(world, reservation_id, cgpus=wanted).json["lease"]["id"]
    devices = call(world, "GET", f"/v1/leases/{lease_id}", None, "admin").json["lease"]["devices"]
    assert len({device["gpu_uuid"] for device in devices}) == 2
    assert len({device["real_address"] for device in devices}) == 1
    world.database.close()
