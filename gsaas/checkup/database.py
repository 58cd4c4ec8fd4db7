# SPDX-License-Identifier: Apache-2.0
"""Check the revision of the database, and that its clock agrees with this controller's.

Controllers write times into the database that other controllers compare with their own clocks, for instance to find
silent agents. Agents send no times, so their clocks do not matter.
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
"""Seconds by which clocks may differ. The timeouts that depend on clocks are ten seconds and longer."""

_CLOCK_QUERIES = {
    "mysql": "SELECT UTC_TIMESTAMP(6)",
    "postgresql": "SELECT now() AT TIME ZONE 'UTC'",
}


def check(database: Database) -> Iterator[Finding]:
    """Check *database*, the revision first; raises what the database raises."""
    current = migration.version(database)
    where = database.engine.url.render_as_string(hide_password=True)
    if problem := ready.problem(current):
        said, _, todo = problem.partition("; run: ")
        yield fail(PART, said, todo or "update GSaaS on this machine")
        return
    yield ok(PART, f"{where} is at revision {current}, as this release needs it")
    if query := _CLOCK_QUERIES.get(database.engine.dialect.name):
        with database.engine.connect() as connection:
            yield compare_clocks(
                connection.execute(sqlalchemy.text(query)).scalar_one(), timeutils.utcnow()
            )


def compare_clocks(database_time: datetime.datetime, own_time: datetime.datetime) -> Finding:
    """Compare the clocks of the database's machine and of this one, both in UTC without a time zone."""
    difference = (own_time - database_time).total_seconds()
    if abs(difference) <= TOLERANCE:
        return ok(CLOCK, "the clocks of this machine and the database agree")
    return warn(
        CLOCK,
        f"this machine is {abs(difference):.0f} s {'ahead of' if difference > 0 else 'behind'} the database's",
        "synchronise the clocks of all controllers with NTP: by their difference, messages and tokens are refused",
    )
