# SPDX-License-Identifier: Apache-2.0
"""Leases that end when their client sends no keepalive."""

from __future__ import annotations

import datetime

import pytest
from oslo_utils import timeutils

from gsaas.db import models
from tests.api.world import World, only_error


def take(world: World, **more: object) -> dict:
    asked = {"cgpus": {"count": 1}, "server": None, **more}
    response = world.call("member", "POST", "/v1/leases", {"lease": asked})
    assert response.status_code == 201, response.json
    return response.json["lease"]


def keep(world: World, lease: dict, caller: str = "member"):
    return world.call(caller, "POST", f"/v1/leases/{lease['id']}/keepalive")


def fall_silent(world: World, lease: dict) -> None:
    with world.database.write() as session:
        row = session.get_one(models.LeaseRow, lease["id"])
        row.kept_until = timeutils.utcnow() - datetime.timedelta(seconds=1)


def status(world: World, lease: dict) -> str:
    return world.call("member", "GET", f"/v1/leases/{lease['id']}").json["lease"]["status"]


def test_a_lease_without_keepalives_ends_and_says_why(world: World):
    lease = take(world, keepalive=60)
    fall_silent(world, lease)
    assert world.claims.run_audit() == [lease["id"]]
    shown = world.call("admin", "GET", f"/v1/leases/{lease['id']}").json["lease"]
    assert shown["status"] == "RELEASED"
    assert "its keepalive has run out" in str(shown["events"])
    with world.database.read() as session:
        assert {gpu.used_mb for gpu in session.query(models.GpuRow)} == {0}


def test_a_keepalive_keeps_the_lease(world: World):
    lease = take(world, keepalive=60)
    fall_silent(world, lease)
    answer = keep(world, lease)
    assert answer.status_code == 200
    assert answer.json["lease"]["kept_until"] > lease["kept_until"]
    assert world.claims.run_audit() == []
    assert status(world, lease) == "ACTIVE"


def test_a_lease_without_a_keepalive_lasts(world: World):
    lease = take(world)
    assert lease["kept_until"] is None
    assert keep(world, lease).json["lease"]["kept_until"] is None
    assert world.claims.run_audit() == []
    assert status(world, lease) == "ACTIVE"


def test_a_released_lease_cannot_be_kept_alive(world: World):
    lease = take(world, keepalive=60)
    world.call("member", "DELETE", f"/v1/leases/{lease['id']}")
    assert only_error(keep(world, lease))["code"] == "gsaas.lease.released"


def test_other_projects_can_neither_keep_a_lease_alive_nor_learn_that_it_exists(world: World):
    lease = take(world, keepalive=60)
    assert keep(world, lease, "stranger").status_code == 404
    assert keep(world, lease, "reader").status_code == 403


@pytest.mark.parametrize("seconds", [0, 9, 86401, 60.5, "60", None])
def test_a_keepalive_is_a_whole_number_of_seconds_within_bounds(world: World, seconds: object):
    asked = {"cgpus": {"count": 1}, "server": None, "keepalive": seconds}
    error = only_error(world.call("member", "POST", "/v1/leases", {"lease": asked}))
    assert error["status"] == 400
    assert "lease.keepalive" in error["detail"]


def test_a_server_keeps_its_lease_itself(world: World):
    asked = {"cgpus": {"count": 1}, "keepalive": 60}
    error = only_error(world.call("member", "POST", "/v1/leases", {"lease": asked}))
    assert error["status"] == 400
    assert "lease.keepalive" in error["detail"]
