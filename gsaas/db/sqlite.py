# SPDX-License-Identifier: Apache-2.0
"""Databases in an SQLite file, as gsaas-standalone and small tests use them.

1. A file has a write-ahead log (WAL), so that readers do not wait for the writer.
2. Each commit is on the disk when it is answered (`synchronous = FULL`). If that fails, the answer is an error; whether
   the next process that opens the file finds the commit is unknown.
3. A transaction that writes takes SQLite's write lock when it begins. One that reads first could not have it any more
   once another one has written (SQLITE_BUSY_SNAPSHOT).
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy
from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import exc_filters
from sqlalchemy import event

LOG = logging.getLogger(__name__)

WRITES = {"gsaas_begin": "BEGIN IMMEDIATE"}
"""Options of an engine whose transactions write."""

BUSY_TIMEOUT = 30
"""Seconds for which a connection waits until another process has done its part."""


def create_engine(url: sqlalchemy.URL) -> sqlalchemy.Engine:
    """Return an engine for the SQLite file at *url*; raises `oslo_db.exception.DBError` if it cannot be opened."""
    engine = sqlalchemy.create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT, "check_same_thread": False},
    )
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    exc_filters.register_engine(engine)
    with engine.connect():
        return engine


def is_file(engine: sqlalchemy.Engine) -> bool:
    """Return whether *engine* is one for an SQLite file, and not for a server or for SQLite in memory."""
    return engine.dialect.name == "sqlite" and bool(engine.url.database)


class Disk:
    """Whether the disk keeps what is written. After one failure it is not trusted again; safe to share by threads."""

    def __init__(self) -> None:
        self.on_failure: Callable[[], None] = lambda: None
        """Called once, when a commit could not be kept."""
        self._failure: db_exception.DBConnectionError | None = None
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise `oslo_db.exception.DBConnectionError` if the disk has failed."""
        if self._failure is not None:
            raise db_exception.DBConnectionError(self._failure)

    def failed(self, error: db_exception.DBConnectionError) -> None:
        """Note that a transaction was not kept."""
        with self._lock:
            is_first, self._failure = self._failure is None, error
        if is_first:
            LOG.critical(
                "cannot write the database to the disk, so nothing is written to it any more; look for the cause, and "
                "restart the service: %s",
                error,
            )
            self.on_failure()


def _set_up(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # `_begin` begins transactions
    _use_write_ahead_log(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin(connection: sqlalchemy.Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("gsaas_begin", "BEGIN"))


def _use_write_ahead_log(connection: Any) -> None:
    """Switch the file to write-ahead logging, where it stays; raises `sqlite3.OperationalError`.

    A new file is switched by its first connection. SQLite needs the file for itself then, and fails at once while
    another connection writes it, whatever the busy timeout is: two that both switch would wait for each other.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _raise_disk_error(
    error: sqlalchemy.exc.OperationalError, _match: object, _dialect: str, _disconnect: bool
) -> None:
    """Raise `DBConnectionError`, as for a server that is away; oslo.db knows no name for it."""
    raise db_exception.DBConnectionError(error)


exc_filters.filters("sqlite", sqlalchemy.exc.OperationalError, ".*disk I/O error")(
    _raise_disk_error
)
