"""Is the database there, as this release needs it, and is its clock ours?

Every time in it is written by a controller, and read by the others: who is silent, whose turn it is. Agents send no
times, so their clocks do not matter.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import sqlalchemy
from oslo_utils import timeutils

from gsaas.checkup.findings import Finding, fail, ok, warn
from gsaas.db import migration, ready
from gsaas.db.database import Database

PART = "database"
CLOCK = "clock"
TOLERANCE = 2.0
"""Seconds that clocks may differ. Time-outs here are ten seconds and more."""

_CLOCKS = {"mysql": "SELECT UTC_TIMESTAMP(6)", "postgresql": "SELECT now() AT TIME ZONE 'UTC'"}


def look(database: Database) -> Iterator[Finding]:
    """Raises what the database raises."""
    current = migration.version(database)
    where = database.engine.url.render_as_string(hide_password=True)
    if problem := ready.problem(current):
        said, _, todo = problem.partition("; run: ")
        yield fail(PART, said, todo or "update GSaaS on this machine")
        return
    yield ok(PART, f"{where} is at revision {current}, as this release needs it")
    if asking := _CLOCKS.get(database.engine.dialect.name):
        with database.engine.connect() as connection:
            yield clock(
                connection.execute(sqlalchemy.text(asking)).scalar_one(), timeutils.utcnow()
            )


def clock(theirs: datetime.datetime, ours: datetime.datetime) -> Finding:
    """Compare the clock of the database's machine with this one's."""
    apart = (ours - theirs).total_seconds()
    if abs(apart) <= TOLERANCE:
        return ok(CLOCK, "this machine and the database's agree on the time")
    return warn(
        CLOCK,
        f"this machine is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} the database's",
        "let NTP set the clocks of all controllers: hosts seem silent, or alive, by their difference",
    )
