# SPDX-License-Identifier: Apache-2.0
"""A transaction that another one has overtaken is tried again, so that the client does not notice.

A Galera cluster ends such a transaction at its commit as if it had lost a deadlock.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy
from oslo_db import exception as db_exception

from gsaas.db import leases, models
from tests.api.world import World, only_error

ONE = {"cgpus": {"count": 1}, "server": None}
KEY = {"Idempotency-Key": "k"}


@pytest.fixture
def overtaken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[str]]]:
    """`overtaken(2)`: the next two changes of a lease lose a deadlock; returns the statements that have lost one."""
    lost: list[str] = []
    left = [0]

    def lose(_connection, _cursor, statement, *_):
        if statement.startswith("UPDATE leases") and left[0]:
            left[0] -= 1
            lost.append(statement)
            raise db_exception.DBDeadlock

    def begin(times: int) -> list[str]:
        left[0] = times
        return lost

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", lose)
    yield begin
    sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", lose)


def launch(world: World, **more) -> str:
    response = world.call("member", "POST", "/v1/leases", {"lease": ONE | more}, headers=KEY)
    assert response.status_code in (201, 202), response.json
    return response.json["lease"]["id"]


def keep(world: World, lease_id: str):
    return world.call("member", "POST", f"/v1/leases/{lease_id}/keepalive")


def look(world: World, lease_id: str):
    return world.call("member", "GET", f"/v1/leases/{lease_id}?while_status=QUEUED&timeout=0")


def age(world: World, column: str, seconds: float) -> None:
    with world.database.write() as session:
        for lease in session.query(models.LeaseRow):
            if (before := getattr(lease, column)) is not None:
                setattr(lease, column, before - datetime.timedelta(seconds=seconds))


def overtake_keepalives(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Have the next keepalives lose a deadlock."""
    keep, left = leases.keep, iter(range(times))

    def lose(*lease):
        kept = keep(*lease)
        if next(left, None) is not None:
            raise db_exception.DBDeadlock
        return kept

    monkeypatch.setattr(leases, "keep", lose)


def test_a_keepalive(world: World, monkeypatch: pytest.MonkeyPatch):
    lease_id = launch(world, keepalive=60)
    overtake_keepalives(monkeypatch, 2)
    assert keep(world, lease_id).status_code == 200


def test_a_launch_with_a_key_of_yesterday(world: World, overtaken):
    first = launch(world)
    age(world, "created_at", 90000)
    lost = overtaken(2)
    assert launch(world) != first
    assert len(lost) == 2


def test_a_poll_of_a_client_that_waits(world: World, overtaken):
    holder = launch(world, cgpus={"count": 8})
    age(world, "created_at", 90000)
    waiting = launch(world, wait=None, attended=True)
    age(world, "waiter_seen_at", 30)
    lost = overtaken(2)
    assert look(world, waiting).json["lease"]["status"] == "QUEUED"

    world.call("member", "DELETE", f"/v1/leases/{holder}")
    overtaken(2)
    assert look(world, waiting).json["lease"]["status"] == "ACTIVE"
    assert len(lost) == 4


@pytest.mark.slow
def test_who_is_overtaken_every_time_is_told_to_try_again(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    lease_id = launch(world, keepalive=60)
    overtake_keepalives(monkeypatch, 1000)
    error = only_error(keep(world, lease_id))
    assert (error["status"], error["code"]) == (503, "gsaas.database.busy")
