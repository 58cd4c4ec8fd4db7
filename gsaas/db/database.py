# SPDX-License-Identifier: Apache-2.0
"""Access to the database: short transactions that read or write.

    database = Database.connect(conf)
    with database.write() as session:
        session.add(models.HostRow(name="gpu1"))

or, for statements that every request waits for, without a session:

    with database.reading() as connection:
        connection.scalar(select(func.count()).select_from(models.GpuRow))

Rows that were read in a session stay readable after its end (they are not expired); changes of them are not stored.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, cast

import sqlalchemy
from oslo_config import cfg
from oslo_db import api as db_api
from oslo_db import exception as db_exception
from oslo_utils import timeutils
from sqlalchemy import orm
from sqlalchemy.exc import StatementError

from gsaas.db import changes, clock, dialects, engines, pooling, sqlite, storage
from gsaas.db.change_numbers import NUMBERING, Numbering, Writers

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class UncommittedError(db_exception.DBConnectionError):  # type: ignore[misc]  # oslo.db has no types
    """The connection was lost before the database was asked to commit: nothing of the transaction is stored."""


_retried = db_api.wrap_db_retry(
    max_retries=5,
    retry_interval=0.05,
    inc_retry_interval=True,
    max_retry_interval=0.5,
    retry_on_deadlock=True,
    exception_checker=lambda error: isinstance(error, UncommittedError | OvertakenError),
)


def retried(function: F) -> F:
    """Return *function* with retries: it is called again when its transaction lost a race, or its connection.

    A race is lost if the database aborts the transaction to end a deadlock, or because it cannot be serialized with
    others, which includes the conflicts of Galera. A connection that is lost during a commit is not tried again: that
    transaction may be stored. Decorate the function that opens the transaction, not one that is called in it.
    """
    return cast(F, _retried(function))


class OvertakenError(Exception):
    """A concurrent transaction has changed a row; this one must be rolled back, and may be tried again."""


class Database:
    """Transactions on one SQLAlchemy engine; safe to share between threads."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self.engine = engine
        self.one_writer = dialects.has_one_writer(engine.dialect)
        """Whether transactions that write come one after the other, so that each sees what those before it wrote."""
        self.on_commit: changes.OnCommit | None = None
        """Told what each transaction has changed; to be set before the first one."""
        self._change_writers = Writers()
        self._clock = None if self.one_writer else clock.DatabaseClock(self.reading)
        self._disk = sqlite.Disk()
        """Of an SQLite file: a database server says itself when it cannot write."""
        self._unstored: storage.CannotStoreError | None = None
        """Why a transaction could not be stored; None if there was none since something was stored for certain."""
        self._write_lock: AbstractContextManager[Any] = nullcontext()
        writes: dict[str, str] = {}
        if sqlite.is_file(engine):
            # SQLite has one writer at a time, and its busy handler would sleep for milliseconds; a lock wakes at once.
            self._write_lock, writes = threading.Lock(), sqlite.WRITES
        name, turns = engine.dialect.name, pooling.Turns(engine)
        self._readers = _Connections(
            engine.execution_options(**dialects.SNAPSHOT.get(name, {})),
            turns,
            dialects.SNAPSHOT_FIRST.get(name),
        )
        self._lookups = _Connections(
            engine.execution_options(**dialects.LOOKUP.get(name, {})), turns
        )
        self._writers = _Connections(engine.execution_options(**writes), turns)

    @classmethod
    def connect(cls, conf: cfg.ConfigOpts, **overrides: object) -> Database:
        """Connect as `gsaas.db.engines.connect` does."""
        return cls(engines.connect(conf, **overrides))

    @classmethod
    def open(cls, url: str, **engine_options: object) -> Database:
        """Connect as `gsaas.db.engines.open_url` does."""
        return cls(engines.open_url(url, **engine_options))

    @contextmanager
    def read(self) -> Iterator[orm.Session]:
        """Yield a session for reading: all queries see one snapshot, and changes are rolled back."""
        with self.reading() as connection:
            with _session(connection) as session:
                yield session
            connection.rollback()  # of what the session may have flushed

    @contextmanager
    def write(self) -> Iterator[orm.Session]:
        """Yield a session whose changes are committed when the block ends, and rolled back when it raises."""
        with self.writing() as connection, _session(connection) as session, session.begin():
            yield session

    @contextmanager
    def reading(self, *, snapshot: bool = True) -> Iterator[sqlalchemy.Connection]:
        """Yield a connection for reading, without a session, whose opening takes as long as some statements.

        All queries see one snapshot. For a single query, which needs none, it is faster without *snapshot*.
        """
        with (self._readers if snapshot else self._lookups).begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlalchemy.Connection]:
        """Yield a connection for writing, without a session; commit when the block ends, roll back when it raises.

        What was committed survives a power failure: it is on the disk before the block is left.
        """
        noted: list[changes.Change] = []
        self._disk.check()
        numbering = Numbering(self._change_writers)
        with self._write_lock:
            try:
                with self._writers.begin() as connection:
                    # Of the connection to the database, which others use later.
                    info = connection.info
                    info[NUMBERING] = numbering
                    if self.on_commit is not None:
                        info[changes.NOTED] = noted
                    try:
                        yield connection
                    finally:
                        info.pop(NUMBERING, None)
                        info.pop(changes.NOTED, None)
                    numbering.committing = True
            except BaseException as raised:
                error = _unwrapped(raised)
                numbering.failed(refused=isinstance(error, db_exception.DBDeadlock))
                if isinstance(error, storage.CannotStoreError):
                    self._unstored = error
                if isinstance(error, db_exception.DBConnectionError):
                    if self.one_writer:
                        self._disk.failed(error)
                    elif not numbering.committing:
                        raise UncommittedError(error) from error
                if error is not raised:
                    raise error from raised
                raise
            numbering.committed()
        if noted and self.on_commit is not None:
            self.on_commit(noted)

    @retried
    def change(self, act: Callable[[sqlalchemy.Connection], T]) -> T:
        """Return what *act* returns for a connection of `writing`; it is called again as `retried` says."""
        with self.writing() as connection:
            return act(connection)

    @property
    def can_skip_locked(self) -> bool:
        """Whether a statement can leave out rows that other transactions have locked (`SKIP LOCKED`)."""
        return dialects.can_skip_locked(self.engine.dialect)

    def now(self) -> datetime.datetime:
        """Return the time (UTC) by the clock of the database, for those who have no connection at hand."""
        return timeutils.utcnow() if self._clock is None else self._clock.now()

    def check(self) -> None:
        """Raise an error if the database can be read, but stores nothing.

        `gsaas.db.storage.CannotStoreError` if it refuses to; it is asked again if it has refused a transaction.
        `oslo_db.exception.DBConnectionError` if the disk of an SQLite file has lost what it was given.
        """
        self._disk.check()
        if self._unstored is not None:
            self.change(storage.write_something)
            self._unstored = None

    def on_storage_failure(self, call: Callable[[], None]) -> None:
        """Call *call*, once, when an SQLite file cannot store anything any more. It must not block."""
        self._disk.on_failure = call

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


class _Connections:
    """Connections of the engine's pool, used in *turns*; *first* is the first statement of each transaction."""

    def __init__(
        self, engine: sqlalchemy.Engine, turns: pooling.Turns, first: str | None = None
    ) -> None:
        self._engine = engine
        self._turns = turns
        self._first = first

    @contextmanager
    def begin(self) -> Iterator[sqlalchemy.Connection]:
        """Yield a connection in a transaction, which is committed when the block ends, rolled back when it raises."""
        with self._turns.turn(), self._engine.begin() as connection:
            if self._first:
                connection.exec_driver_sql(self._first)
            yield connection


def _unwrapped(error: BaseException) -> BaseException:
    """Return what a statement failed with that is the default of a column, as the number of a change is.

    SQLAlchemy wraps it in an error of the statement for whose sake it was executed.
    """
    is_wrapped = isinstance(error, StatementError) and isinstance(error.orig, db_exception.DBError)
    return cast(BaseException, error.orig) if is_wrapped else error  # type: ignore[attr-defined]


def _session(connection: sqlalchemy.Connection) -> orm.Session:
    return orm.Session(connection, expire_on_commit=False)
