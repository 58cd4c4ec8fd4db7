# SPDX-License-Identifier: Apache-2.0
"""Leases that have ended: what each of them used, in the API and in `gsaas history`."""

from __future__ import annotations

import datetime
import re

import pytest

from gsaas.db import history as purged
from gsaas.db import models, readings
from gsaas.db.readings import CgpuReading

LATEST = {"OpenStack-API-Version": "gpu-scheduling latest"}
HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def ended(world):
    """The id of a lease that had three quarters of two GPUs for two hours, and ended an hour ago."""
    lease = world.launch(count=2, mode="shared", memory_mb=6144)["id"]
    world.engine.settle()
    now = world.database.now()
    found = [
        *(CgpuReading(lease, 0, percent, used) for percent, used in ((10.0, 500), (80.0, 1500))),
        CgpuReading(lease, 1, 0.0, None),
    ]
    for reading in found:
        with world.database.writing() as connection:
            readings.add_cgpus(connection, [reading], now)
    world.call("member", "DELETE", f"/v1/leases/{lease}")
    world.engine.settle()
    with world.database.write() as session:
        stored = session.get(models.LeaseRow, lease)
        stored.claimed_at, stored.released_at = now - 3 * HOUR, now - HOUR
    return lease


def shown(world, lease_id: str, **more):
    return world.call("reader", "GET", f"/v1/leases/{lease_id}", headers=LATEST, **more).json[
        "lease"
    ]


def test_a_lease_that_has_ended_says_what_it_used(world, ended):
    """A mean is that of all readings, a peak that of one cGPU."""
    assert shown(world, ended)["usage"] == {
        "gpu_hours": 3.0,
        "mean_utilisation": 30.0,
        "peak_utilisation": 80.0,
        "peak_memory_mb": 1500,
    }
    path = "/v1/leases?status=RELEASED"
    (listed,) = world.call("reader", "GET", path, headers=LATEST).json["leases"]
    assert listed["usage"] == shown(world, ended)["usage"]
    assert listed["claimed_at"] < listed["released_at"]
    assert "usage" not in world.call("reader", "GET", path).json["leases"][0]


def test_readings_of_a_day_go_and_what_a_lease_used_stays_until_it_is_purged(world, ended):
    later = world.database.now() + datetime.timedelta(days=3)
    with world.database.writing() as connection:
        while readings.forget_some(connection, later):
            pass
    assert shown(world, ended)["usage"]["peak_memory_mb"] == 1500
    with world.database.writing() as connection:
        assert purged.purge(connection, later, 10) == 1
        assert readings.of_lease(connection, ended) == readings.Intervals([], [])


def test_a_lease_that_nobody_could_measure_has_gpu_hours_and_one_without_gpus_nothing(world):
    lease = world.launch()["id"]
    usage = shown(world, lease)["usage"]
    assert usage.pop("gpu_hours") >= 0
    assert set(usage.values()) == {None}
    world.launch(count=7)
    body = {"lease": {"cgpus": {"count": 1}, "server": {}, "wait": 600}}
    queued = world.call("member", "POST", "/v1/leases", body).json["lease"]
    assert queued["status"] == "QUEUED"
    assert (shown(world, queued["id"])["usage"], shown(world, queued["id"])["claimed_at"]) == (
        None,
        None,
    )


def test_gsaas_history_lists_leases_that_have_ended(desk):
    desk.read("alloc", "-ncgpus=1", "-name=first")
    desk.read("alloc", "-ncgpus=2", "-name=second")
    desk.read("alloc", "-ncgpus=1", "-name=third")
    assert re.fullmatch(
        "no lease has ended since [0-9-]{10} [0-9:]{5}\n", desk.type("history", "-since=7d")[1]
    )
    for name in ("second", "first"):
        desk.type("release", name)
    heading, *rows = desk.type("history")[1].splitlines()
    assert heading.split("  ")[1] == "lease"
    assert [row.split()[1] for row in rows] == ["second", "first"]
    (first,) = desk.read("history", "-name=first")
    assert rows[1].split()[0] == first["id"][:8]
    assert rows[1].split()[-3:] == ["-", "-", "-"]
    assert desk.read("history", "-since=tomorrow") == []
    desk.sit("stranger")
    assert desk.read("history") == []
    desk.sit("admin")
    assert len(desk.read("history", "-all", "-since=2026-01-01")) == 2


def test_gsaas_history_refuses_a_time_that_is_none(desk):
    status, _, err = desk.type("history", "-since=soon")
    assert status == 2
    assert "-since is a date or time such as" in err
    assert "how long ago it is, such as 7d" in err
