# SPDX-License-Identifier: Apache-2.0
"""Tenants see what their cGPUs do, and since when they have done nothing. They learn no GPU and no host from it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy
from oslo_utils import timeutils

from gsaas.db import leases, readings
from gsaas.db.readings import CgpuReading, PathReading
from gsaasclient.times import local
from tests.api.world import World, only_error

NEWEST = {"OpenStack-API-Version": "gpu-scheduling latest"}
QUIET = (3000, 2500, 2000, 1500, 1000, 500, 10)
"""When a lease was read that is known to be idle for 3000 seconds."""
SEEN = ("uuid", "gpu_uuid", "gpu_host", "gpu1", "gpu2", "GPU-", "192.168", "real_address")


def ago(seconds: float) -> datetime.datetime:
    return timeutils.utcnow() - datetime.timedelta(seconds=seconds)


def launched(world: World, **cgpus) -> str:
    lease_id = world.launch(**cgpus)["id"]
    world.engine.settle()
    return lease_id


def measure(world: World, lease_id: str, seconds_ago: float, *percents: float | None) -> None:
    """Add a reading of each cGPU with these utilisations."""
    found = [CgpuReading(lease_id, index, each, 100) for index, each in enumerate(percents)]
    with world.database.writing() as connection:
        readings.add_cgpus(connection, found, ago(seconds_ago))


def carry(world: World, lease_id: str, seconds_ago: float, sent: int, dropped: int = 0) -> None:
    with world.database.writing() as connection:
        reading = PathReading(lease_id, sent, 2 * sent, 3, dropped)
        readings.add_paths(connection, [reading], ago(seconds_ago))


def get(world: World, path: str, caller: str = "member", headers=NEWEST):
    return world.call(caller, "GET", path, headers=headers)


def shown(world: World, lease_id: str, caller: str = "member") -> dict:
    response = get(world, f"/v1/leases/{lease_id}/readings", caller)
    assert response.status_code == 200, response.json
    return response.json["readings"]


def lease(world: World, lease_id: str, caller: str = "member") -> dict:
    return get(world, f"/v1/leases/{lease_id}", caller).json["lease"]


@contextmanager
def statements() -> Iterator[list[str]]:
    """Collect the statements that a database executes meanwhile."""
    executed: list[str] = []

    def note(connection, cursor, statement, *_) -> None:
        executed.append(statement)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", note)
    try:
        yield executed
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", note)


def test_the_last_hour_is_shown_by_minutes_and_the_last_day_by_ten_minutes(world):
    lease_id = launched(world, count=2, mode="shared", memory_mb=2048)
    measure(world, lease_id, 7200, 10.0, 20.0)
    measure(world, lease_id, 120, 30.0, None)
    carry(world, lease_id, 120, 1000)
    carry(world, lease_id, 60, 7000, dropped=2)

    found = shown(world, lease_id)
    minutes, tens = found["series"]

    assert (found["lease_id"], minutes["seconds"], tens["seconds"]) == (lease_id, 60, 600)
    before, last = minutes["points"]
    assert before["cgpus"] == [
        {"index": 0, "utilisation": 30.0, "used_mb": 100},
        {"index": 1, "utilisation": None, "used_mb": 100},
    ]
    assert before["path"] == {
        "sent_bytes_per_second": None,
        "received_bytes_per_second": None,
        "connections": 3,
        "dropped_packets": None,
    }
    assert last["path"]["sent_bytes_per_second"] == pytest.approx(100, rel=0.1)
    assert last["path"]["received_bytes_per_second"] == pytest.approx(200, rel=0.1)
    assert (last["path"]["connections"], last["path"]["dropped_packets"]) == (3, 2)
    assert tens["points"][0]["cgpus"][1] == {"index": 1, "utilisation": 20.0, "used_mb": 100}


def test_a_lease_without_readings_has_none(world):
    lease_id = launched(world)
    assert shown(world, lease_id) == {
        "lease_id": lease_id,
        "idle_since": None,
        "series": [{"seconds": 60, "points": []}, {"seconds": 600, "points": []}],
    }
    assert (lease(world, lease_id)["idle_since"], lease(world, lease_id)["reading"]) == (None, None)


def test_a_lease_shows_its_newest_reading(world):
    lease_id = launched(world)
    measure(world, lease_id, 30, 80.0)
    (in_list,) = get(world, "/v1/leases").json["leases"]
    for found in (in_list, lease(world, lease_id)):
        assert found["reading"]["cgpus"] == [{"index": 0, "utilisation": 80.0, "used_mb": 100}]
        assert (found["reading"]["path"], found["idle_since"]) == (None, None)


def test_an_idle_lease_says_since_when(world):
    idle, busy = launched(world), launched(world)
    for seconds in QUIET:
        measure(world, idle, seconds, 0.0)
        measure(world, busy, seconds, 1.0)
    by_id = {each["id"]: each for each in get(world, "/v1/leases").json["leases"]}
    assert by_id[busy]["idle_since"] is None
    since = datetime.datetime.fromisoformat(by_id[idle]["idle_since"]).replace(tzinfo=None)
    assert abs(since - ago(3000)) < datetime.timedelta(minutes=1)
    assert shown(world, idle)["idle_since"] == by_id[idle]["idle_since"]


def test_a_lease_that_has_ended_keeps_its_readings_and_is_not_idle(world):
    lease_id = launched(world)
    for seconds in (3000, 10):
        measure(world, lease_id, seconds, 0.0)
    world.call("member", "DELETE", f"/v1/leases/{lease_id}")
    world.engine.settle()
    found = shown(world, lease_id)
    assert found["idle_since"] is None
    assert len(found["series"][0]["points"]) == 2


def test_nothing_names_a_gpu_or_a_host_to_a_tenant(world):
    lease_id = launched(world, count=2)
    measure(world, lease_id, 30, 1.0, 2.0)
    carry(world, lease_id, 30, 1000)
    readings_of, one = shown(world, lease_id), lease(world, lease_id)
    text = json.dumps([readings_of, one["reading"], one["idle_since"]])
    assert not [word for word in SEEN if word in text]


def test_another_project_has_no_such_lease(world):
    lease_id = launched(world)
    response = get(world, f"/v1/leases/{lease_id}/readings", "stranger")
    assert only_error(response)["status"] == 404


def test_an_older_microversion_has_no_readings(world):
    lease_id = launched(world)
    measure(world, lease_id, 30, 1.0)
    old = {"OpenStack-API-Version": "gpu-scheduling 1.4"}
    error = only_error(get(world, f"/v1/leases/{lease_id}/readings", headers=old))
    assert (error["status"], "1.5" in error["detail"]) == (400, True)
    one = get(world, f"/v1/leases/{lease_id}", headers=old).json["lease"]
    assert not {"idle_since", "reading"} & one.keys()


def test_a_list_reads_all_readings_at_once(world):
    for _ in range(4):
        launched(world)
    get(world, "/v1/leases")
    with statements() as executed:
        get(world, "/v1/leases")
    assert sum("cgpu_readings" in each for each in executed) == 1
    assert sum("path_readings" in each for each in executed) == 1


def test_a_claim_reads_and_writes_no_readings(world):
    with statements() as executed:
        response = world.call(
            "member",
            "POST",
            "/v1/leases",
            {"lease": {"cgpus": {"count": 1}, "server": None}},
            headers=NEWEST,
        )
    assert response.status_code == 201
    assert not [each for each in executed if "readings" in each]


def test_top_shows_what_each_lease_does(desk):
    lease_id = desk.world.launch(count=2)["id"]
    desk.world.engine.settle()
    measure(desk.world, lease_id, 30, 80.0, 40.0)
    carry(desk.world, lease_id, 90, 0)
    carry(desk.world, lease_id, 30, 60 * 2048)
    status, out, err = desk.type("top", "-once")
    assert (status, err) == (0, "")
    (row,) = (line for line in out.splitlines() if lease_id[:8] in line)
    assert row.split()[5:-2] == [*("GPU", "60", "200", "2.0", "KiB/s", "4.0", "KiB/s", "3", "-")]
    found = desk.read("top")["leases"]
    assert found[0]["reading"]["path"]["connections"] == 3


def test_top_and_list_and_show_say_since_when_a_lease_is_idle(desk):
    lease_id = desk.world.launch()["id"]
    desk.world.engine.settle()
    for seconds in QUIET:
        measure(desk.world, lease_id, seconds, 0.0)
    moment = local(lease(desk.world, lease_id)["idle_since"])
    assert moment in desk.type("top", "-once")[1]
    assert moment in desk.type("show", lease_id)[1]
    assert "ACTIVE, idle" in desk.type("list")[1]


def warned(world: World) -> str:
    lease_id = launched(world)
    for seconds in QUIET:
        measure(world, lease_id, seconds, 0.0)
    with world.database.writing() as connection:
        leases.update(connection, lease_id, reclaim_at=datetime.datetime(2040, 1, 2, 3, 4, 5))
    return lease_id


def test_an_idle_lease_whose_owner_was_warned_says_when_it_ends(desk):
    lease_id = warned(desk.world)
    assert lease(desk.world, lease_id)["reclaim_at"] == "2040-01-02T03:04:05.000000Z"
    moment = "2040-01-02 03:04:05"
    assert f"ends at {moment}" in desk.type("top", "-once")[1]
    assert f"{moment}, unless something uses it before" in desk.type("show", lease_id)[1]
    assert desk.read("list", "-c=id", "-c=reclaim_at")[0]["reclaim_at"].startswith("2040-01-02")


def test_the_microversion_before_does_not_say_when_an_idle_lease_ends(world):
    lease_id = warned(world)
    before = {"OpenStack-API-Version": "gpu-scheduling 1.5"}
    one = get(world, f"/v1/leases/{lease_id}", headers=before).json["lease"]
    assert "idle_since" in one
    assert "reclaim_at" not in one


def test_a_lease_that_has_ended_is_not_about_to_be_reclaimed(world):
    lease_id = warned(world)
    world.call("member", "DELETE", f"/v1/leases/{lease_id}")
    assert lease(world, lease_id)["reclaim_at"] is None
