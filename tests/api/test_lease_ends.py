# SPDX-License-Identifier: Apache-2.0
"""Leases with an end, over HTTP: asked for, shown, postponed, refused, and told to those who wait."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gsaas.api.times import iso
from gsaas.db import leases, reservations
from gsaas.engine.lease_ends import STILL_WAITED, LeaseEnds
from tests.api.world import World, only_error

NEWEST = {"OpenStack-API-Version": "gpu-scheduling latest"}
HOUR = datetime.timedelta(hours=1)
ALL = 8


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Builds a world with these settings of [leases]."""
    worlds = []

    def make(**settings: int) -> World:
        lines = [f"{name} = {value}" for name, value in settings.items()]
        worlds.append(World.build(tmp_path, settings="\n".join(["[leases]", *lines, ""])))
        return worlds[0]

    yield make
    for made in worlds:
        made.database.close()


def post(world: World, count: int = 1, caller: str = "member", **fields: Any) -> Any:
    lease = {"cgpus": {"count": count}, "server": None} | fields
    return world.call(caller, "POST", "/v1/leases", {"lease": lease}, headers=NEWEST)


def take(world: World, count: int = 1, **fields: Any) -> dict[str, Any]:
    response = post(world, count, **fields)
    assert response.status_code in (201, 202), response.json
    return response.json["lease"]


def change(world: World, lease_id: str, caller: str = "member", **fields: Any) -> Any:
    path = f"/v1/leases/{lease_id}"
    return world.call(caller, "PATCH", path, {"lease": fields}, headers=NEWEST)


def show(world: World, lease_id: str) -> dict[str, Any]:
    response = world.call("member", "GET", f"/v1/leases/{lease_id}", headers=NEWEST)
    return response.json["lease"]


def at(world: World, hours: float) -> str:
    return iso(world.database.now() + hours * HOUR) or ""


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=None)


def let_time_pass(world: World, lease_id: str, hours: float) -> None:
    """Have a lease be older by this time, and let an engine look."""
    with world.database.writing() as connection:
        lease = leases.get(connection, lease_id)
        times = ("claimed_at", "queued_at", "ends_at")
        past = {name: getattr(lease, name) for name in times if getattr(lease, name)}
        changed = {name: when - hours * HOUR for name, when in past.items()}
        leases.update(connection, lease_id, **changed)
    LeaseEnds(world.conf, world.database, world.claims).audit()


def test_a_lease_ends_after_its_duration(world):
    lease = take(world, duration=3600)
    assert lease["duration"] == 3600
    row = leases_row(world, lease["id"])
    assert row.ends_at == row.claimed_at + HOUR
    assert moment(lease["ends_at"]) == row.ends_at

    let_time_pass(world, lease["id"], 0.9)
    assert show(world, lease["id"])["status"] == "ACTIVE"
    let_time_pass(world, lease["id"], 0.1)
    shown = show(world, lease["id"])
    assert shown["status"] == "RELEASED"
    assert [event["event"] for event in shown["events"]] == [
        *("claim", "activate", "ending", "end", "release", "finish")
    ]
    assert take(world, ALL)["status"] == "ACTIVE"


def leases_row(world: World, lease_id: str) -> Any:
    with world.database.reading() as connection:
        return leases.get(connection, lease_id)


def test_a_lease_ends_at_a_certain_time_with_any_offset(world):
    end = world.database.now().replace(microsecond=0) + 2 * HOUR
    there = end.replace(tzinfo=datetime.UTC).astimezone(datetime.timezone(5.5 * HOUR))
    lease = take(world, ends_at=there.isoformat())
    assert (moment(lease["ends_at"]), lease["duration"]) == (end, None)


def test_a_duration_begins_when_the_lease_leaves_the_queue(world):
    first = take(world, ALL)
    waiting = take(world, wait=None, duration=3600)
    assert (waiting["status"], waiting["ends_at"]) == ("QUEUED", None)
    let_time_pass(world, waiting["id"], 10)
    assert show(world, waiting["id"])["status"] == "QUEUED"
    world.call("member", "DELETE", f"/v1/leases/{first['id']}")
    row = leases_row(world, waiting["id"])
    assert row.status == "ACTIVE"
    assert row.ends_at == row.claimed_at + HOUR


def test_a_request_that_waits_leaves_the_queue_at_its_end(world):
    take(world, ALL)
    waiting = take(world, wait=None, ends_at=at(world, 1))
    let_time_pass(world, waiting["id"], 1)
    shown = show(world, waiting["id"])
    assert (shown["status"], shown["fault"]["message"]) == ("RELEASED", STILL_WAITED)


def test_one_whose_end_has_come_gets_no_gpus_before_an_engine_has_looked(world):
    first = take(world, ALL)
    waiting = take(world, wait=None, ends_at=at(world, 1))
    with world.database.writing() as connection:
        leases.update(connection, waiting["id"], ends_at=world.database.now())
    world.call("member", "DELETE", f"/v1/leases/{first['id']}")
    assert show(world, waiting["id"])["status"] == "QUEUED"


def test_its_owner_postpones_the_end_and_brings_it_forward(world):
    lease = take(world, duration=3600)
    began = leases_row(world, lease["id"]).claimed_at
    longer = change(world, lease["id"], duration=7200).json["lease"]
    assert moment(longer["ends_at"]) == began + 2 * HOUR
    soon = at(world, 0.5)
    sooner = change(world, lease["id"], ends_at=soon).json["lease"]
    assert (sooner["ends_at"], sooner["duration"]) == (soon, None)
    never = change(world, lease["id"], ends_at=None).json["lease"]
    assert (never["ends_at"], never["duration"]) == (None, None)
    assert show(world, lease["id"])["status"] == "ACTIVE"


def test_a_change_of_the_name_leaves_the_end_as_it_is(world):
    lease = take(world, duration=3600)
    named = change(world, lease["id"], name="training").json["lease"]
    assert (named["duration"], named["ends_at"]) == (3600, lease["ends_at"])


def test_only_those_who_may_change_a_lease_change_its_end(world):
    lease = take(world, duration=3600)
    assert change(world, lease["id"], "reader", duration=7200).status_code == 403
    assert change(world, lease["id"], "stranger", duration=7200).status_code == 404
    assert show(world, lease["id"])["duration"] == 3600


@pytest.mark.parametrize(
    ("hours", "code"), [(-1, "gsaas.lease.end.in-past"), (0, "gsaas.lease.end.in-past")]
)
def test_an_end_in_the_past_is_refused(world, hours, code):
    before = world.rows()
    assert only_error(post(world, ends_at=at(world, hours)))["code"] == code
    assert world.rows() == before
    lease = take(world, duration=3600)
    assert only_error(change(world, lease["id"], ends_at=at(world, hours)))["code"] == code
    assert show(world, lease["id"])["ends_at"] == lease["ends_at"]


def test_a_lease_has_a_duration_or_an_end_at_a_time_and_not_both(world):
    both = {"duration": 60, "ends_at": at(world, 1)}
    assert "not both" in only_error(post(world, **both))["detail"]
    lease = take(world)
    assert "not both" in only_error(change(world, lease["id"], **both))["detail"]


def test_where_leases_have_to_end_they_do(build):
    world = build(longest_duration=7200)
    assert only_error(post(world))["code"] == "gsaas.lease.end.missing"
    refused = only_error(post(world, duration=7201))
    assert (refused["status"], refused["code"]) == (403, "gsaas.lease.end.too-late")
    lease = take(world, duration=7200)
    let_time_pass(world, lease["id"], 1)
    # The hour that it has had counts.
    late = only_error(change(world, lease["id"], ends_at=at(world, 1.1)))
    assert late["code"] == "gsaas.lease.end.too-late"
    assert only_error(change(world, lease["id"], ends_at=None))["code"] == "gsaas.lease.end.missing"
    assert change(world, lease["id"], duration=5400).status_code == 200


def test_a_lease_gets_the_operators_default_if_it_names_no_end(build):
    world = build(longest_duration=7200, default_duration=1800)
    assert take(world)["duration"] == 1800
    assert take(world, duration=3600)["duration"] == 3600


def test_a_lease_is_not_postponed_into_a_reservation_of_its_gpus(world):
    lease = take(world, ALL, duration=3600)
    start = at(world, 3)
    body = {"cgpus": {"count": ALL}, "start": start, "end": at(world, 5)}
    made = world.call("stranger", "POST", "/v1/reservations", {"reservation": body}, headers=NEWEST)
    assert made.status_code == 201, made.json
    refused = only_error(change(world, lease["id"], duration=4 * 3600))
    assert (refused["status"], refused["code"]) == (409, "gsaas.lease.end.reserved")
    assert start in refused["detail"]
    assert only_error(change(world, lease["id"], ends_at=None))["code"] == refused["code"]
    assert change(world, lease["id"], ends_at=start).status_code == 200


def test_a_reservation_gets_gpus_whose_leases_end_before_it(world):
    """It would begin without its GPUs on those of a lease that lasts."""
    lasts = take(world, 4)
    ends = take(world, 4, duration=3600)
    free = {claim.gpu_uuid for claim in leases_row(world, ends["id"]).claims}
    body = {"cgpus": {"count": 4}, "start": at(world, 2), "end": at(world, 3)}
    made = world.call("member", "POST", "/v1/reservations", {"reservation": body}, headers=NEWEST)
    assert made.status_code == 201, made.json
    with world.database.reading() as connection:
        (found,) = reservations.live(connection)
    assert {share.gpu_uuid for share in found.shares} == free
    assert lasts["status"] == "ACTIVE"


def test_a_request_in_the_queue_is_told_when_leases_end(world):
    take(world, 6, duration=3600)
    take(world, 2)
    waiting = take(world, 4, wait=None)
    estimate = show(world, waiting["id"])["queue"]["estimate_seconds"]
    assert 3500 < estimate <= 3600
    places = world.call("member", "GET", "/v1/queue", headers=NEWEST).json["places"]
    assert 3500 < places[0]["estimate_seconds"] <= 3600
