# SPDX-License-Identifier: Apache-2.0
"""Reservations that are beyond the limits of today: reported, and left as they are."""

from __future__ import annotations

import datetime

import pytest

from gsaas.checkup import reservations
from gsaas.checkup.findings import Level
from gsaas.objects.request import Request
from gsaas.objects.reservation import Reservation, ReservationStatus
from tests.api.world import World

DAY = datetime.timedelta(days=1)


@pytest.fixture
def world(tmp_path):
    made = World.build(tmp_path)
    yield made
    made.database.close()


def reserve(world: World, name: str, begins: float, ends: float, project: str = "blue") -> None:
    now = world.database.now()
    wanted = Reservation(
        *(name, project, "u", "n", ReservationStatus.PENDING, Request(2).to_dict()),
        *(now + begins * DAY, now + ends * DAY, now),
    )
    world.claims.reservations.create(wanted, Request(2))


def findings(world: World) -> list[tuple[Level, str]]:
    with world.database.reading() as connection:
        return [(one.level, one.said) for one in reservations.check(connection, world.conf)]


def test_reservations_beyond_the_limits_are_named(world):
    for name, begins, ends in (("short", 1, 2), ("long", 1, 41), ("far", 95, 96)):
        reserve(world, name, begins, ends)
    assert findings(world) == [(Level.OK, "3 reservations, all of them within the limits")]
    world.conf.set_override("reservation_days", 30, "quotas")
    [(level, said)] = findings(world)
    assert (level, said.startswith("long is longer than")) == (Level.WARN, True)
    world.conf.set_override("reservation_days_ahead", 90, "quotas")
    [(level, said)] = findings(world)
    assert (level, said.startswith("long, far are longer than")) == (Level.WARN, True)
    assert len(world.rows()["reservations"]) == 3


def test_projects_with_more_than_their_quota_are_named(world):
    reserve(world, "one", 1, 2)
    reserve(world, "two", 3, 4, project="red")
    body = {"lease": {"cgpus": {"count": 2}, "server": None}}
    assert world.call("member", "POST", "/v1/leases", body).status_code == 201
    world.conf.set_override("cgpus", 3, "quotas")
    [(level, said)] = findings(world)
    assert (level, said.startswith("project blue have more")) == (Level.WARN, True)
