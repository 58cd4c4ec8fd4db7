# SPDX-License-Identifier: Apache-2.0
"""A database server that loses races, connections and commits: SQLite in a file, with a point at each statement.

One transaction writes at a time, as in SQLite; others read what was committed before they began. The faults are those
of servers: a statement that ends in a deadlock, a commit that is refused (Galera's certification), a commit whose
outcome is unknown because the connection was lost, and a server that is away.
"""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import event

from gsaas.db import clock
from gsaas.db.database import Database
from tests.support import sqlite
from tests.world import baton, facade
from tests.world.baton import Process, Task

LOST_RACE = "database is locked"
"""What oslo.db makes a `DBDeadlock` of."""
LOST_CONNECTION = "disk I/O error"
"""What oslo.db makes a `DBConnectionError` of."""


@dataclass
class Weather:
    """How likely it is, 0 to 1, that something happens to a transaction that writes."""

    deadlock: float = 0.0
    refused: float = 0.0
    """The commit is refused, and nothing is stored."""
    unknown: float = 0.0
    """The connection is lost during the commit, which was stored or was not."""
    is_away: bool = False


class Server:
    """The database of one world."""

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        self._path = path
        self._tell = tell
        self.weather = Weather()
        self.commits = 0
        """Transactions that wrote something."""
        self._writer: Task | None = None
        self._waiting: list[Task] = []
        self._connections: list[tuple[Process, Any]] = []
        sqlite.in_file(path, sqlite.tables()).close()

    def open(self) -> Database:
        """Return the database as the process of the caller uses it."""
        process = baton.here().current.process
        engine = sqlite.opened(f"sqlite:///{self._path}").engine
        engine.dispose()
        engine.dialect = _DIALECT
        database = Database(engine)  # copies the dialect that the engine has then
        engine.pool._max_overflow = 1000  # type: ignore[attr-defined]  # nobody may wait in there
        database.one_writer = False  # as on a server: a lost connection is no broken disk

        def connected(connection: Any, _: object) -> None:
            connection.execute("PRAGMA busy_timeout = 0")  # nobody may wait in there, either
            self._connections.append((process, connection))

        event.listen(engine, "connect", connected)
        return database

    def forget(self, process: Process) -> None:
        """*process* has ended: the server ends its transactions."""
        for owner, connection in self._connections:
            if owner is process:
                with suppress(sqlite3.Error):
                    connection.close()
        self._connections = [each for each in self._connections if each[0] is not process]
        if self._writer is not None and self._writer.process is process:
            self._release()

    # -- what the dialect asks ------------------------------------------------------------------------

    def before(self, statement: str) -> None:
        """Pass a point before a statement; raises what the server answers if it does not carry it out."""
        scheduler = baton.here()
        scheduler.point()
        if self.weather.is_away:
            raise sqlite3.OperationalError(LOST_CONNECTION)
        me = scheduler.current
        if statement.startswith("BEGIN IMMEDIATE"):
            while self._writer is not None:
                scheduler.wait(self._waiting)
            self._writer = me
        elif self._writer is me and scheduler.chance.random() < self.weather.deadlock:
            self._tell("the database ended a deadlock")
            raise sqlite3.OperationalError(LOST_RACE)

    def commit(self, store: Callable[[], None], give_up: Callable[[], None]) -> None:
        """Store a transaction, or do not."""
        scheduler = baton.here()
        if self._writer is not scheduler.current:
            store()
            return
        failure = self._failure()
        try:
            scheduler.point()
            if failure is None or failure[0]:
                store()
                self.commits += 1
            else:
                give_up()
        finally:
            self._release()
        if failure is not None:
            self._tell(failure[2])
            raise sqlite3.OperationalError(failure[1])
        scheduler.effect("commit")

    def _failure(self) -> tuple[bool, str, str] | None:
        """Return whether a commit is stored all the same, what it fails with, and how the story tells it."""
        weather, chance = self.weather, baton.here().chance
        if weather.is_away:
            return False, LOST_CONNECTION, "the database went away before a commit"
        drawn = chance.random()
        if drawn < weather.refused:
            return False, LOST_RACE, "the database refused a commit"
        if drawn < weather.refused + weather.unknown:
            if chance.random() < 0.5:
                return True, LOST_CONNECTION, "a commit was stored, and its connection lost"
            return False, LOST_CONNECTION, "a commit was lost with its connection"
        return None

    def ended(self) -> None:
        """The transaction of this task was rolled back."""
        if self._writer is not None and self._writer is baton.here().current:
            self._release()

    def _release(self) -> None:
        self._writer = None
        baton.here().wake(self._waiting)


_server: Server | None = None


def use(server: Server) -> None:
    """Have all databases be on *server*, whose clock is right."""
    global _server
    _server = server
    clock.now = lambda _: facade.true_time()


def _make_dialect() -> Any:
    dialect: Any = copy.copy(sqlite._DIALECT)
    execute, bare = dialect.do_execute, dialect.do_execute_no_params
    many, commit, rollback = dialect.do_executemany, dialect.do_commit, dialect.do_rollback

    def do_execute(cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        if _server is not None:
            _server.before(statement)
        execute(cursor, statement, parameters, context)

    def do_executemany(cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        if _server is not None:
            _server.before(statement)
        many(cursor, statement, parameters, context)

    def do_execute_no_params(cursor: Any, statement: str, context: Any = None) -> None:
        if _server is not None:
            _server.before(statement)
        bare(cursor, statement, context)

    def do_commit(connection: Any) -> None:
        if _server is None:
            commit(connection)
        else:
            _server.commit(lambda: commit(connection), lambda: rollback(connection))

    def do_rollback(connection: Any) -> None:
        rollback(connection)
        if _server is not None:
            _server.ended()

    dialect.do_execute, dialect.do_executemany = do_execute, do_executemany
    dialect.do_execute_no_params = do_execute_no_params
    dialect.do_commit, dialect.do_rollback = do_commit, do_rollback
    return dialect


_DIALECT = _make_dialect()
