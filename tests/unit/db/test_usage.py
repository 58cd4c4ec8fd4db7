# SPDX-License-Identifier: Apache-2.0
"""History says what leases held, and when."""

from __future__ import annotations

import datetime

from gsaas.db import usage
from gsaas.db.database import Database
from gsaas.objects.usage import LeaseUsage
from tests.support import rows


def at(hour: int) -> datetime.datetime:
    return datetime.datetime(2026, 11, 1) + datetime.timedelta(hours=hour, microseconds=1)


def held(database: Database, start: int, end: int, **more: str) -> set[LeaseUsage]:
    with database.read() as session:
        return set(usage.lease_usages(session, at(start), at(end), **more))


def add(
    database: Database, name: str, begin: int | None, end: int | None, project: str = "blue"
) -> LeaseUsage:
    """Store a lease of half a GPU that was held so; return what is to be read of it."""
    held = {"claimed_at": None, "claimed_gpus": None, "claimed_mb": None}
    if begin is not None:
        held = {"claimed_at": at(begin), "claimed_gpus": 0.5, "claimed_mb": 2**40}
    over = {} if end is None else {"status": "RELEASED", "released_at": at(end)}
    with database.write() as session:
        session.add(rows.lease(name, project_id=project, **held, **over))
    return LeaseUsage(project, at(begin or 0), over.get("released_at"), 0.5, 2**40)


def test_leases_are_read_that_held_something_in_the_period(database):
    add(database, "before", 0, 10)
    ends = add(database, "ends in it", 0, 11)
    begins = add(database, "begins in it", 19, 30)
    lasts = add(database, "lasts", 0, None)
    add(database, "after", 20, None)
    add(database, "waited in vain", None, 12)
    assert held(database, 10, 20) == {ends, begins, lasts}


def test_one_projects_history_is_read_by_itself(database):
    blue = add(database, "lease-1", 1, 2)
    red = add(database, "lease-2", 1, None, "red")
    assert held(database, 0, 3, project_id="red") == {red}
    assert held(database, 0, 3) == {blue, red}
