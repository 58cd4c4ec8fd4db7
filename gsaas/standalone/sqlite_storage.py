"""SQLite as gsaas-standalone needs it: one writer at a time, and commits that share a trip to the disk.

The entry point `sqlite` of `gsaas.db.storage`: `gsaas.db.database` loads it for a database in a file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from sqlalchemy import event

from gsaas.db.prepared import RUNNER, Prepared
from gsaas.standalone.sqlite_journal import Journal
from gsaas.standalone.sqlite_statements import SqliteStatements

PAGE_BYTES = 1024
"""Of a new database. A claim writes a little to each of a dozen pages, and they go to the disk as a whole."""
CHECKPOINT_PAGES = 4000
"""Pages that are written ahead before they go where they belong. Most are written again and again, so rarely is
cheaper; reading is not slower up to here."""

_STATEMENTS = SqliteStatements()
_BEGIN_READING = Prepared(sqlalchemy.text("BEGIN"))
_BEGIN_WRITING = Prepared(sqlalchemy.text("BEGIN IMMEDIATE"))


class SqliteStorage:
    """What `gsaas.db.database.Storage` describes, for the SQLite file of *engine*."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        # A transaction that reads first and writes later cannot have the write lock once another has written
        # (SQLITE_BUSY_SNAPSHOT), so writers ask for it when they begin.
        self.readers = _OpenConnections(engine, _BEGIN_READING)
        self.writers = _OpenConnections(engine, _BEGIN_WRITING)
        # SQLite has one writer at a time, and a thread that finds it busy sleeps for milliseconds.
        self.write_lock = threading.Lock()
        self._journal = Journal(str(engine.url.database))

    @staticmethod
    def tune(engine: sqlalchemy.Engine) -> None:
        """Have each connection of *engine* set up: readers never wait for the one writer, and writers wait in turn."""
        event.listen(engine, "connect", _tune)

    def sync(self) -> None:
        """Return when all that was committed is on the disk; raises `oslo_db.exception.DBError`."""
        self._journal.sync()

    def sync_soon(self) -> None:
        """Have all that was committed on the disk within `gsaas.standalone.sqlite_journal.SYNC_DELAY` seconds."""
        self._journal.sync_soon()


class _OpenConnections:
    """Connections to an SQLite file that stay open between transactions, each of which *begin* begins.

    oslo.db has SQLite opened anew for each, which takes longer than most of them do. Its listeners, which begin
    transactions, are left out as well: every statement would have to ask whether it has listeners.
    """

    def __init__(self, engine: sqlalchemy.Engine, begin: Prepared) -> None:
        self._engine = sqlalchemy.Engine(
            engine.pool,
            engine.dialect,
            engine.url,
            execution_options=engine.get_execution_options().union({RUNNER: _STATEMENTS}),
        )
        self._begin = begin
        self._idle: list[sqlalchemy.Connection] = []
        self._owner = os.getpid()

    @contextmanager
    def begin(self) -> Iterator[sqlalchemy.Connection]:
        """A connection in a transaction, which is committed when the block ends well."""
        if self._owner != os.getpid():  # after a fork they are the parent's
            self._idle, self._owner = [], os.getpid()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._engine.connect()
        try:
            with connection.begin():
                self._begin.run(connection)
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
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")  # the rest is for `Journal` to do
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
