# SPDX-License-Identifier: Apache-2.0
"""The database of a world behaves as servers do, with one lock for all rows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import Connection

from gsaas.db import clock, leases
from gsaas.db.database import Database, UncommittedError
from gsaas.db.models import LeaseRow
from tests.support import rows
from tests.world import baton, database


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> database.Server:
    """One with a lease, whose transactions lock late."""
    monkeypatch.setattr(baton, "scheduler", baton.Scheduler(random.Random(1)))
    monkeypatch.setattr(clock, "now", clock.now)
    monkeypatch.setattr(database, "_server", None)
    made = database.Server(tmp_path / "world.db", lambda _: None, locks_late=True)
    database.use(made)
    with made.open().write() as session:
        session.add(rows.lease("lease-1", name="before"))
    return made


def name(connection: Connection) -> str:
    return connection.scalar(sqlalchemy.select(LeaseRow.name))


def rename(connection: Connection, before: str, after: str) -> int:
    """Rename the lease if it has the name *before*; return how many were renamed."""
    change = sqlalchemy.update(LeaseRow).where(LeaseRow.name == before).values(name=after)
    return connection.execute(change).rowcount


def rename_elsewhere(server: database.Server, before: str, after: str) -> None:
    assert server.open().change(lambda connection: rename(connection, before, after)) == 1


def test_a_transaction_sees_what_others_commit_and_its_condition_matches_no_row(server):
    with server.open().writing() as connection:
        assert name(connection) == "before"
        rename_elsewhere(server, "before", "between")
        assert name(connection) == "between"
        assert rename(connection, "before", "after") == 0
    assert name_now(server.open()) == "between"


def name_now(one: Database) -> str:
    with one.reading() as connection:
        return name(connection)


def test_a_reader_sees_one_snapshot(server):
    with server.open().reading() as connection:
        assert name(connection) == "before"
        rename_elsewhere(server, "before", "after")
        assert name(connection) == "before"
    assert name_now(server.open()) == "after"


def test_what_is_locked_stays_as_it_is_until_the_commit(server):
    scheduler, told = baton.here(), []

    def other() -> None:
        rename_elsewhere(server, "first", "second")
        told.append("second")

    with server.open().writing() as connection:
        leases.lock(connection, "lease-1")
        task = scheduler.spawn("other", other)
        scheduler.sleep(1)
        assert name(connection) == "before"
        rename(connection, "before", "first")
        told.append("first")
    scheduler.join(task)
    assert told == ["first", "second"]
    assert name_now(server.open()) == "second"


def test_locked_rows_can_be_left_out(server):
    with server.open().writing() as connection:
        assert [each.id for each in leases.lock_free(connection, ["lease-1"])] == ["lease-1"]
        with server.open().writing() as other:
            assert leases.lock_free(other, ["lease-1"]) == []


def test_the_transaction_of_a_lost_connection_ends(server):
    with pytest.raises(UncommittedError), server.open().writing() as connection:
        rename(connection, "before", "never")
        server.weather.lost_connection = 1.0
        name(connection)
    server.weather.lost_connection = 0.0
    rename_elsewhere(server, "before", "after")


def test_what_is_rolled_back_was_never_there_and_locks_nothing(server):
    with pytest.raises(ZeroDivisionError), server.open().writing() as connection:
        rename(connection, "before", "never")
        raise ZeroDivisionError
    rename_elsewhere(server, "before", "after")
