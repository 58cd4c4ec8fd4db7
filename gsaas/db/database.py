# SPDX-License-Identifier: Apache-2.0
"""Access to the database: one SQLAlchemy engine, and short transactions that read or write.

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
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol, TypeVar, cast

import sqlalchemy
from oslo_config import cfg
from oslo_db import api as db_api
from oslo_db import exception as db_exception
from oslo_db import options as db_options
from oslo_db.sqlalchemy import engines
from oslo_utils import timeutils
from sqlalchemy import orm
from stevedore import driver as stevedore_driver

from gsaas.db import changes, clock, pooling
from gsaas.db import outages as outages  # oslo.db is taught by its import
from gsaas.db.change_numbers import NUMBERING, Numbering, Writers

F = TypeVar("F", bound=Callable[..., Any])

STORAGE = "gsaas.db.storage"
"""Entry points by dialect: a `Storage` for databases that live inside the process."""

_retried = db_api.wrap_db_retry(
    max_retries=5,
    retry_interval=0.05,
    inc_retry_interval=True,
    max_retry_interval=0.5,
    retry_on_deadlock=True,
)


def retried(function: F) -> F:
    """Return *function* with retries: it is called again when the database ends a deadlock by aborting its transaction.

    For functions that write, and may be called again. Decorate the function that opens the session, not one that is
    called in it.
    """
    return cast(F, _retried(function))


READS = {"postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}}
"""Dialect -> options with which all queries of a reader see one snapshot."""
MARIADB_SKIPS_LOCKED = (10, 6)
MYSQL_SKIPS_LOCKED = (8, 0, 1)
"""The first versions with `SKIP LOCKED`; PostgreSQL has had it since 9.5."""

LOOKUPS = {"postgresql": {"isolation_level": "AUTOCOMMIT"}}
"""Dialect -> options with which a single query is a transaction: two round trips less, where that is the driver's own
business. MariaDB and MySQL would have to be told before and after."""

READS_FIRST = {"mysql": "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"}
"""Dialect -> the first statement of a reader that has the same effect, and is faster there."""


class OvertakenError(Exception):
    """A concurrent transaction has changed a row; this one must be rolled back, and may be tried again.

    *gpu* is the UUID of the GPU that the other one has changed, if it was a GPU.
    """

    def __init__(self, gpu: str | None = None) -> None:
        super().__init__(gpu)
        self.gpu = gpu


class Connections(Protocol):
    """A source of connections."""

    def begin(self) -> AbstractContextManager[sqlalchemy.Connection]:
        """Return a connection in a transaction, which is committed when the block ends, rolled back when it raises."""

    def close(self) -> None:
        """Close every connection that is not in use."""


class Storage(Protocol):
    """How a database that lives inside the process is read and written."""

    readers: Connections
    writers: Connections
    write_lock: threading.Lock
    """Acquired by each transaction that writes: they come one after the other."""

    @staticmethod
    def tune(engine: sqlalchemy.Engine) -> None:
        """Set up every connection that *engine* opens from now on."""

    def check(self) -> None:
        """Raise `oslo_db.exception.DBConnectionError` if the disk does not keep what is written."""

    def on_failure(self, call: Callable[[], None]) -> None:
        """Call *call*, once, when what was committed cannot be written to the disk."""

    def sync(self) -> None:
        """Return when all that was committed is on the disk; raises `oslo_db.exception.DBConnectionError`."""

    def sync_soon(self) -> None:
        """Sync all that was committed to the disk a moment later, without waiting for it."""


def section(conf: cfg.ConfigOpts) -> cfg.ConfigOpts.GroupAttr:
    """Return the section `[database]`: oslo.db's options, which agents lack, because they use no database."""
    conf.register_opts(db_options.database_opts, "database")
    options: cfg.ConfigOpts.GroupAttr = conf.database
    return options


class Database:
    """Sessions on one SQLAlchemy engine; safe to share between threads."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self.engine = engine
        self.one_writer = engine.dialect.name == "sqlite"
        """Whether transactions that write come one after the other, so that each sees what those before it wrote."""
        self.on_commit: changes.OnCommit | None = None
        """Told what each transaction has changed; to be set before the first one."""
        self._change_writers = Writers()
        self._told: tuple[datetime.datetime, float] | None = None
        """The time that the database told, and when that was, as `time.monotonic` counts."""
        self._asking = threading.Lock()
        """Acquired by the thread that asks for the time."""
        self._storage: Storage | None = None
        """None for a database server, which syncs its commits itself, and for a database in memory."""
        self._readers: Connections
        self._lookups: Connections
        """Readers for a single query."""
        self._writers: Connections
        self._write_lock: AbstractContextManager[Any] = nullcontext()
        if engine.dialect.name == "sqlite" and engine.url.database:
            self._storage = _storage(engine.dialect.name)(engine)
            self._readers = self._lookups = self._storage.readers
            self._writers = self._storage.writers
            self._write_lock = self._storage.write_lock
        else:
            dialect = engine.dialect.name
            reading, turns = (
                engine.execution_options(**READS.get(dialect, {})),
                pooling.Turns(engine),
            )
            self._readers = _Pooled(reading, turns, READS_FIRST.get(dialect))
            self._writers = _Pooled(engine, turns)
            lookups = engine.execution_options(**LOOKUPS.get(dialect, {}))
            self._lookups = _Pooled(lookups, turns)

    @classmethod
    def connect(cls, conf: cfg.ConfigOpts, **overrides: object) -> Database:
        """Connect as `[database]` says; raises `oslo_db.exception.DBError` when it cannot.

        *overrides* are engine options of oslo.db; they replace those of *conf*.
        """
        options = section(conf)
        configured = {
            "connection_recycle_time": options.connection_recycle_time,
            "max_pool_size": options.max_pool_size,
            "max_overflow": options.max_overflow,
            "pool_timeout": options.pool_timeout,
            "mysql_sql_mode": options.mysql_sql_mode,
            "mysql_wsrep_sync_wait": options.mysql_wsrep_sync_wait,
            "max_retries": options.max_retries,
            "retry_interval": options.retry_interval,
        }
        return cls.open(options.connection, **(configured | overrides))

    @classmethod
    def open(cls, url: str, **engine_options: object) -> Database:
        """Connect to *url*, an SQLAlchemy database URL. *engine_options* are oslo.db's.

        Raises `sqlalchemy.exc.ArgumentError` if *url* is not such a URL, and `oslo_db.exception.DBError` if the
        database does not answer.
        """
        options = {"mysql_sql_mode": "TRADITIONAL", **engine_options}
        engine = engines.create_engine(
            _complete(url), sqlite_fk=True, thread_checkin=False, **options
        )
        if engine.dialect.name == "sqlite" and engine.url.database:
            _storage(engine.dialect.name).tune(engine)
        return cls(engine)

    @contextmanager
    def read(self) -> Iterator[orm.Session]:
        """Yield a session for reading: all queries see one snapshot, and changes are rolled back."""
        with self.reading() as connection:
            with _session(connection) as session:
                yield session
            connection.rollback()  # of what the session may have flushed

    @contextmanager
    def write(self, *, async_commit: bool = False) -> Iterator[orm.Session]:
        """Yield a session whose changes are committed when the block ends, and rolled back when it raises.

        After the commit they are on the disk, except with *async_commit*, as of `writing`.
        """
        with (
            self.writing(async_commit=async_commit) as connection,
            _session(connection) as session,
            session.begin(),
        ):
            yield session

    @contextmanager
    def reading(self, *, snapshot: bool = True) -> Iterator[sqlalchemy.Connection]:
        """Yield a connection for reading, without a session, whose opening takes as long as some statements.

        All queries see one snapshot. For a single query, which needs none, it is faster without *snapshot*.
        """
        with (self._readers if snapshot else self._lookups).begin() as connection:
            yield connection

    @contextmanager
    def writing(self, *, async_commit: bool = False) -> Iterator[sqlalchemy.Connection]:
        """Yield a connection for writing, without a session; commit when the block ends, roll back when it raises.

        With *async_commit*, a database inside the process may sync the changes to the disk a moment later. That is for
        changes that may be lost in a power failure, and for a caller that calls `sync` after it has released a lock.
        A later change is never on the disk without these.
        """
        noted: list[changes.Change] = []
        self.check()  # before anything is written: what cannot be kept would claim GPUs that no client knows of
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
            except BaseException as error:
                numbering.failed(refused=isinstance(error, db_exception.DBDeadlock))
                raise
            numbering.committed()
        if self._storage is not None:
            if async_commit:
                self._storage.sync_soon()
            else:
                self._storage.sync()
        if noted and self.on_commit is not None:
            self.on_commit(noted)

    @property
    def can_skip_locked(self) -> bool:
        """Whether a statement can leave out rows that other transactions have locked (`SKIP LOCKED`)."""
        dialect = self.engine.dialect
        if dialect.name != "mysql":
            return dialect.name == "postgresql"
        since = (
            MARIADB_SKIPS_LOCKED if getattr(dialect, "is_mariadb", False) else MYSQL_SKIPS_LOCKED
        )
        return (dialect.server_version_info or ()) >= since

    def now(self) -> datetime.datetime:
        """Return the time (UTC) by the clock of the database, for those who have no connection at hand.

        Those who have one call `gsaas.db.clock.now`: a second connection may be one more than there are. The database
        is asked once a minute, by one thread; others go on with the last answer meanwhile.
        """
        if self.one_writer:
            return timeutils.utcnow()
        told = self._told
        if told is None:
            with self._asking:
                told = self._told or self._ask_time()
        elif _is_old(told) and self._asking.acquire(blocking=False):
            try:
                told = self._ask_time()
            finally:
                self._asking.release()
        return told[0] + datetime.timedelta(seconds=time.monotonic() - told[1])

    def _ask_time(self) -> tuple[datetime.datetime, float]:
        with self.reading() as connection:
            told = self._told = clock.now(connection), time.monotonic()
        return told

    def check(self) -> None:
        """Raise `oslo_db.exception.DBConnectionError` if the database can be read but keeps nothing any more.

        A database server that cannot write says so itself.
        """
        if self._storage is not None:
            self._storage.check()

    def on_storage_failure(self, call: Callable[[], None]) -> None:
        """Call *call*, once, when a database inside the process cannot store anything any more. It must not block."""
        if self._storage is not None:
            self._storage.on_failure(call)

    def sync(self) -> None:
        """Wait until all that was committed before is on the disk."""
        if self._storage is not None:
            self._storage.sync()

    def close(self) -> None:
        """Close every connection."""
        self._readers.close()
        self._writers.close()
        self.engine.dispose()


class _Pooled:
    """Connections of the engine's pool, used in *turns*; *first* is the first statement of each transaction."""

    def __init__(
        self, engine: sqlalchemy.Engine, turns: pooling.Turns, first: str | None = None
    ) -> None:
        self._engine = engine
        self._turns = turns
        self._first = first

    @contextmanager
    def begin(self) -> Iterator[sqlalchemy.Connection]:
        with self._turns.turn(), self._engine.begin() as connection:
            if self._first:
                connection.exec_driver_sql(self._first)
            yield connection

    def close(self) -> None:
        """Do nothing: the engine closes its pool."""


def _is_old(told: tuple[datetime.datetime, float]) -> bool:
    return time.monotonic() - told[1] > clock.ASKED_EVERY


def _storage(dialect: str) -> Any:
    """Return the class of the `Storage` of a dialect."""
    return stevedore_driver.DriverManager(STORAGE, dialect).driver


def _complete(url: str) -> str:
    """Return *url* with the options that GSaaS needs: on MariaDB and MySQL, the character set of all of Unicode.

    oslo.db would choose `utf8`, which these two interpret as the three-byte subset, and it recognises both only by the
    name `mysql`.
    """
    parsed = sqlalchemy.make_url(url)
    if parsed.get_backend_name() in ("mysql", "mariadb"):
        parsed = parsed.set(drivername=f"mysql+{parsed.get_driver_name()}")
        parsed = parsed.update_query_dict({"charset": "utf8mb4", **parsed.query})
    if parsed.get_backend_name() != "sqlite":
        parsed = pooling.pooled(parsed)
    return parsed.render_as_string(hide_password=False)


def _session(connection: sqlalchemy.Connection) -> orm.Session:
    return orm.Session(connection, expire_on_commit=False)
