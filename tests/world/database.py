# SPDX-License-Identifier: Apache-2.0
"""A database server that loses races, connections and commits: SQLite in a file, with a point at each statement.

1. A reader sees one snapshot: what was committed before its first query, whatever is committed meanwhile.
2. A transaction that writes reads what is committed at each of its statements (READ COMMITTED, as on every server),
   until it locks or changes its first row. So what it has planned may be outdated when it has the lock: its conditions
   match no row, and generations have changed. In half of the worlds it locks as it begins, as in an SQLite file.
3. There is one lock for all rows. Who has to wait for a row waits for every writer before it; where rows that others
   have locked may be left out (`SKIP LOCKED`), all of them are.
4. A statement may end in a deadlock, or with its connection lost. A commit may be refused (Galera's certification), or
   its connection be lost while it is stored or is not. The server may be away.

What cannot be seen here: two writers that have locked different rows, and so deadlocks that follow from the order of
locks, and what only one of two isolation levels prevents. `tests/services` has that, on real servers.
"""

from __future__ import annotations

import copy
import enum
import functools
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from gsaas.db import clock
from gsaas.db import sqlite as sqlite_files
from gsaas.db.database import Database
from tests.support import sqlite
from tests.world import baton, facade
from tests.world.baton import Process, Task

LOST_RACE = "database is locked"
"""What oslo.db makes a `DBDeadlock` of."""
LOST_CONNECTION = "disk I/O error"
"""What oslo.db makes a `DBConnectionError` of."""
BEGINS_WRITING = sqlite_files.WRITES["gsaas_begin"]
NOTHING = "SELECT 1"
_TABLES_OF_ROOM = (" gpus ", " hosts ", " leases ")
"""What decides how much new leases could have."""


class Locks(enum.Enum):
    """What a statement locks."""

    NOTHING = enum.auto()
    ROWS = enum.auto()
    SKIPS = enum.auto()
    """The rows that nobody else has locked."""


@dataclass
class Weather:
    """How likely it is, 0 to 1, that something happens to a transaction that writes."""

    deadlock: float = 0.0
    refused: float = 0.0
    """The commit is refused, and nothing is stored."""
    unknown: float = 0.0
    """The connection is lost during the commit, which was stored or was not."""
    lost_connection: float = 0.0
    """A statement is not carried out, and the connection is lost."""
    is_away: bool = False


class ServerDatabase(Database):
    """What a process of GSaaS uses, which takes the file for a server."""

    locks_late = False

    @property
    def can_skip_locked(self) -> bool:
        return self.locks_late


class Server:
    """The database of one world, whose transactions lock what they change late, or as they begin."""

    def __init__(
        self, path: Path, tell: Callable[[str], None], *, locks_late: bool = False
    ) -> None:
        self._path = path
        self._tell = tell
        self._locks_late = locks_late
        self.weather = Weather()
        self.commits = 0
        """Transactions that wrote something."""
        self.on_commit: Callable[[], None] = lambda: None
        """Called when a transaction is stored that has changed what new leases could have."""
        self._changes_room = False
        """The transaction that writes does so."""
        self._writer: Any = None
        """The connection that has the lock."""
        self._unlocked: set[Any] = set()
        """Those in a transaction that has locked nothing yet."""
        self._waiting: list[Task] = []
        self._connections: list[tuple[Process, Any]] = []
        sqlite.in_file(path, sqlite.tables()).close()

    def open(self) -> Database:
        """Return the database as the process of the caller uses it."""
        pool: Any = _template().pool.recreate()
        pool._creator = lambda: sqlite3.connect(self._path, check_same_thread=False)
        engine = copy.copy(_template())
        engine.pool = pool
        database = ServerDatabase(engine)  # has as many turns as the pool has connections by then
        pool._max_overflow = pool._pool.maxsize = (
            1000  # nobody may wait in there, and all stay open
        )
        database.one_writer = False  # as on a server: a lost connection is no broken disk
        if self._locks_late:
            database.locks_late = True
            database._write_lock = nullcontext()
        return database

    def connected(self, connection: Any) -> None:
        """Note a new connection of the process that runs."""
        connection.execute("PRAGMA busy_timeout = 0")  # nobody may wait in there, either
        self._connections.append((baton.here().current.process, connection))

    def forget(self, process: Process) -> None:
        """*process* has ended: the server ends its transactions."""
        for owner, connection in self._connections:
            if owner is process:
                with suppress(sqlite3.Error):
                    connection.close()
                self.ended(connection)
        self._connections = [each for each in self._connections if each[0] is not process]

    # -- what the dialect asks ------------------------------------------------------------------------

    def before(self, cursor: Any, statement: str, context: Any) -> str:
        """Pass a point before a statement, and return what to carry out instead.

        Raises what the server answers if it does not carry it out.
        """
        scheduler, connection = baton.here(), cursor.connection
        scheduler.point()
        if self.weather.is_away or scheduler.chance.random() < self.weather.lost_connection:
            connection.rollback()  # SQLAlchemy asks no connection for that which is lost
            self.ended(connection)
            raise sqlite3.OperationalError(LOST_CONNECTION)
        if statement == BEGINS_WRITING:
            if self._locks_late:
                self._unlocked.add(connection)
                return NOTHING
            self._lock(connection)
        elif connection in self._unlocked:
            lock = _lock_of(statement, context)
            if lock == Locks.SKIPS and self._writer is not None:
                return f"SELECT * FROM ({statement}) WHERE 0"
            if lock != Locks.NOTHING:
                self._lock(connection)
                cursor.execute(BEGINS_WRITING)
        if self._writer is connection:
            self._changes_room |= any(table in statement[:24] for table in _TABLES_OF_ROOM)
            if scheduler.chance.random() < self.weather.deadlock:
                self._tell("the database ended a deadlock")
                raise sqlite3.OperationalError(LOST_RACE)
        return statement

    def _lock(self, connection: Any) -> None:
        while self._writer is not None:
            baton.here().wait(self._waiting)
        self._writer, self._changes_room = connection, False
        self._unlocked.discard(connection)

    def commit(
        self, connection: Any, store: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        """Store a transaction, or do not."""
        scheduler = baton.here()
        self._unlocked.discard(connection)
        if self._writer is not connection:
            store()
            return
        failure = self._failure()
        try:
            scheduler.point()
            if failure is None or failure[0]:
                store()
                self.commits += 1
                if self._changes_room:
                    self.on_commit()
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

    def ended(self, connection: Any) -> None:
        """The transaction of this connection was rolled back."""
        self._unlocked.discard(connection)
        if self._writer is connection:
            self._release()

    def _release(self) -> None:
        self._writer = None
        baton.here().wake(self._waiting)


def _lock_of(statement: str, context: Any) -> Locks:
    """Return what a statement locks; SQLite's own statements do not say it."""
    if not statement.startswith(("SELECT", "WITH")):
        return Locks.ROWS
    compiled = getattr(context, "compiled", None)
    asked = getattr(getattr(compiled, "statement", None), "_for_update_arg", None)
    if asked is None:
        return Locks.NOTHING
    return Locks.SKIPS if asked.skip_locked else Locks.ROWS


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
            statement = _server.before(cursor, statement, context)
        execute(cursor, statement, parameters, context)

    def do_executemany(cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        if _server is not None:
            statement = _server.before(cursor, statement, context)
        many(cursor, statement, parameters, context)

    def do_execute_no_params(cursor: Any, statement: str, context: Any = None) -> None:
        if _server is not None:
            statement = _server.before(cursor, statement, context)
        bare(cursor, statement, context)

    def do_commit(connection: Any) -> None:
        if _server is None:
            commit(connection)
        else:
            _server.commit(
                connection.dbapi_connection,
                lambda: commit(connection),
                lambda: rollback(connection),
            )

    def do_rollback(connection: Any) -> None:
        rollback(connection)
        if _server is not None:
            _server.ended(connection.dbapi_connection)

    dialect.do_execute, dialect.do_executemany = do_execute, do_executemany
    dialect.do_execute_no_params = do_execute_no_params
    dialect.do_commit, dialect.do_rollback = do_commit, do_rollback
    return dialect


_DIALECT = _make_dialect()


@functools.cache
def _template() -> Engine:
    """What the engines of all processes are copies of, each with connections of its own: making one takes longer."""
    with tempfile.TemporaryDirectory() as folder:
        made = sqlite.opened(f"sqlite:///{folder}/world.db").engine
        made.dispose()
    made.dialect = _DIALECT
    event.listen(made, "connect", lambda connection, _: _server and _server.connected(connection))
    return made
