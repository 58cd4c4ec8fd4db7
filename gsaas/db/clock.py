# SPDX-License-Identifier: Apache-2.0
"""The time by the database server's clock, for what several machines write and compare: their own clocks may differ.

The server is asked once a minute for each connection. In between, the time is counted on by this machine's monotonic
clock, which no correction of the time of day changes.
"""

from __future__ import annotations

import datetime
import time

from oslo_utils import timeutils
from sqlalchemy import Connection, text

ASKED_EVERY = 60.0
"""Seconds."""

_INFO = "gsaas clock"
_QUERIES = {
    "mysql": text("SELECT UTC_TIMESTAMP(6)"),
    "postgresql": text("SELECT clock_timestamp() AT TIME ZONE 'UTC'"),
}


def now(connection: Connection) -> datetime.datetime:
    """Return the time (UTC) by the clock of the database server; of this machine, if the database is within it."""
    query = _QUERIES.get(connection.dialect.name)
    if query is None:
        return timeutils.utcnow()
    told: tuple[datetime.datetime, float] | None = connection.info.get(_INFO)
    if told is None or time.monotonic() - told[1] > ASKED_EVERY:
        told = connection.info[_INFO] = connection.execute(query).scalar_one(), time.monotonic()
    return told[0] + datetime.timedelta(seconds=time.monotonic() - told[1])
