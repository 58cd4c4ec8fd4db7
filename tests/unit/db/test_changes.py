# SPDX-License-Identifier: Apache-2.0
"""What a transaction has changed is told once it is committed, and never if it is not."""

from __future__ import annotations

import pytest

from gsaas.db import changes, leases
from gsaas.db.database import Database
from gsaas.objects.lifecycle import Event, Status
from tests.support import rows


@pytest.fixture
def told(database: Database):
    """Each commit's changes: what on_commit was called with, and whether the database had them by then."""
    found = []

    def on_commit(happened):
        with database.reading() as connection:
            stored = {
                event.event for one in happened for event in leases.events(connection, one.lease_id)
            }
        found.append(([one.event for one in happened], {one.event for one in happened} <= stored))

    with database.write() as session:
        session.add_all([rows.host(), rows.gpu(), rows.lease("a"), rows.lease("b")])
    database.on_commit = on_commit
    yield found
    database.on_commit = None


def test_changes_are_told_after_the_commit_in_order(database: Database, told: list):
    with database.writing() as connection:
        leases.transition(connection, "a", Event.RELEASE)
        leases.transition(connection, "a", Event.FINISH)
        assert told == []
    assert told == [(["release", "finish"], True)]


def test_a_session_tells_as_well(database: Database, told: list):
    with database.write() as session:
        leases.transition(session.connection(), "b", Event.FAIL, "x", fault_message="x")
    assert told == [(["fail"], True)]


def test_what_was_rolled_back_is_not_told_by_a_later_transaction(database: Database, told: list):
    with pytest.raises(RuntimeError), database.writing() as connection:
        leases.transition(connection, "a", Event.RELEASE)
        raise RuntimeError
    with database.writing() as connection:
        leases.update(connection, "a", name="other")
    assert told == []
    with database.reading() as connection:
        assert leases.get(connection, "a").status == Status.CLAIMED


def test_nothing_is_noted_while_nobody_is_told(database: Database):
    with database.write() as session:
        session.add_all([rows.host(), rows.gpu(), rows.lease("a")])
    with database.writing() as connection:
        leases.transition(connection, "a", Event.RELEASE)
        assert changes.NOTED not in connection.info
