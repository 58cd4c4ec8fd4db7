# SPDX-License-Identifier: Apache-2.0
"""The time by the database server's clock, for what several machines write and compare: their own clocks may differ.

The server is asked once a minute for each connection. In between, the time is counted on by this machine's monotonic
clock, which no correction of the time of day changes.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

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


class DatabaseClock:
    """The same for those who have no connection at hand; *connect* opens one. Safe to share between threads.

    Those who have a connection call `now`: a second connection may be one more than there are. The database is asked
    once a minute, by one thread; others go on with the last answer meanwhile.
    """

    def __init__(self, connect: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._connect = connect
        self._told: tuple[datetime.datetime, float] | None = None
        """The time that the database told, and when that was, as `time.monotonic` counts."""
        self._asking = threading.Lock()
        """Acquired by the thread that asks for the time."""

    def now(self) -> datetime.datetime:
        """Return the time (UTC) by the clock of the database."""
        told = self._told
        if told is None:
            with self._asking:
                told = self._told or self._ask()
        elif time.monotonic() - told[1] > ASKED_EVERY and self._asking.acquire(blocking=False):
            try:
                told = self._ask()
            finally:
                self._asking.release()
        return told[0] + datetime.timedelta(seconds=time.monotonic() - told[1])

    def _ask(self) -> tuple[datetime.datetime, float]:
        with self._connect() as connection:
            told = self._told = now(connection), time.monotonic()
        return told
