# SPDX-License-Identifier: Apache-2.0
"""SQLite as gsaas-standalone needs it: one writer at a time, and one sync to the disk for several commits.

The entry point `sqlite` of `gsaas.db.storage`: `gsaas.db.database` loads it for a database in a file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from oslo_db.sqlalchemy import exc_filters
from sqlalchemy import event

from gsaas.standalone.sqlite_journal import Journal

PAGE_BYTES = 1024
"""The page size of a new database. A claim changes a little in each of a dozen pages, and whole pages are written, so
small pages cost less."""
CHECKPOINT_PAGES = 4000
"""Pages in the write-ahead log after which they are copied into the database. Most pages are changed again and again,
so copying rarely costs less; up to this number, reading is not slower."""

BUSY_TIMEOUT = 30
"""Seconds for which a connection waits until another one has done its part."""

_BEGIN_READING = "BEGIN"
_BEGIN_WRITING = "BEGIN IMMEDIATE"


class SqliteStorage:
    """What `gsaas.db.database.Storage` describes, for the SQLite file of *engine*."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        # A transaction that reads first and writes later cannot have the write lock once another has written
        # (SQLITE_BUSY_SNAPSHOT), so writers ask for it when they begin.
        self.readers = _OpenConnections(engine, _BEGIN_READING)
        self.writers = _OpenConnections(engine, _BEGIN_WRITING)
        # SQLite has one writer at a time, and its busy handler would sleep for milliseconds; a lock wakes at once.
        self.write_lock = threading.Lock()
        self._journal = Journal(str(engine.url.database))

    @staticmethod
    def tune(engine: sqlalchemy.Engine) -> None:
        """Set up every connection that *engine* opens: readers never wait for a writer, and writers wait for it."""
        event.listen(engine, "connect", _tune)

    def check(self) -> None:
        """Raise `oslo_db.exception.DBConnectionError` if the disk does not keep what is written."""
        self._journal.check()

    def on_failure(self, call: Callable[[], None]) -> None:
        """Have *call* called, once, when a sync has failed."""
        self._journal.on_failure = call

    def sync(self) -> None:
        """Return when all that was committed is on the disk; raises `oslo_db.exception.DBError`."""
        self._journal.sync()

    def sync_soon(self) -> None:
        """Sync all that was committed to the disk within `gsaas.standalone.sqlite_journal.SYNC_DELAY` seconds."""
        self._journal.sync_soon()


class _OpenConnections:
    """Connections to an SQLite file that stay open between transactions, each of which *begin* begins.

    oslo.db opens SQLite anew for each transaction, which takes longer than most transactions. Its listeners, which
    begin transactions, are not used either: they know one way to begin.
    """

    def __init__(self, engine: sqlalchemy.Engine, begin: str) -> None:
        self._engine = sqlalchemy.Engine(
            engine.pool,
            engine.dialect,
            engine.url,
            execution_options=engine.get_execution_options(),
        )
        exc_filters.register_engine(self._engine)
        self._begin = begin
        self._idle: list[sqlalchemy.Connection] = []
        self._owner = os.getpid()

    @contextmanager
    def begin(self) -> Iterator[sqlalchemy.Connection]:
        """Yield a connection in a transaction, which is committed when the block ends, rolled back when it raises."""
        if self._owner != os.getpid():  # after a fork they are the parent's
            self._idle, self._owner = [], os.getpid()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._engine.connect()
        try:
            with connection.begin():
                connection.exec_driver_sql(self._begin)
                yield connection
        finally:
            if connection.closed or connection.invalidated:
                connection.close()
            else:
                self._idle.append(connection)

    def close(self) -> None:
        """Close every connection that is not in use."""
        while self._idle:
            self._idle.pop().close()


def _tune(connection: Any, _record: Any) -> None:
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    _use_write_ahead_log(connection)
    connection.execute("PRAGMA synchronous = NORMAL")  # the rest is for `Journal` to do
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT * 1000}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")


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
