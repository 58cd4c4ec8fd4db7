"""The door to the database: one engine, short sessions that read or write, nothing else.

    database = Database.connect(conf)
    with database.write() as session:
        session.add(models.HostRow(name="gpu1"))

or, for statements that every request waits for, without a session:

    with database.reading() as connection:
        connection.scalar(select(func.count()).select_from(models.GpuRow))

Rows read in a session stay readable after it (they are not expired), as plain values; changing them then changes
nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol, TypeVar, cast

import sqlalchemy
from oslo_config import cfg
from oslo_db import api as db_api
from oslo_db.sqlalchemy import engines
from sqlalchemy import orm
from stevedore import driver as stevedore_driver

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
    """Call *function* again when the database ends a deadlock by giving up its transaction.

    For functions that write, and may simply be called again. Decorate the function that opens the session, not one
    that is called in it.
    """
    return cast(F, _retried(function))


READS = {"postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}}
"""What readers need to have one consistent view; elsewhere that is the default."""
WRITES = {"mysql": "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"}
"""The first statement of transactions that write: they see what others committed, and lock the rows that they name,
not the gaps between.

Under the default, REPEATABLE READ, two claims of neighbouring keys can end in a deadlock.
"""


class OvertakenError(Exception):
    """Another transaction was faster; this one cannot go on, and may be tried again."""


class Connections(Protocol):
    """A source of connections."""

    def begun(self) -> AbstractContextManager[sqlalchemy.Connection]:
        """A connection in a transaction, which is committed when the block ends well."""

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
        """Have each connection of *engine* set up."""

    def settle(self) -> None:
        """Return when all that was committed is on the disk; raises `oslo_db.exception.DBError`."""

    def settle_soon(self) -> None:
        """Have all that was committed on the disk a moment later."""


class Database:
    """Sessions on one SQLAlchemy engine; safe to share between threads."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self.engine = engine
        self.one_writer = engine.dialect.name == "sqlite"
        """Do transactions that write come one after the other, so that each sees what those before it wrote?"""
        self._storage: Storage | None = None
        """None for a server, whose commits are on its disk by themselves, and for a database in memory."""
        self._readers: Connections
        self._writers: Connections
        self._write_lock: AbstractContextManager[Any] = nullcontext()
        if engine.dialect.name == "sqlite" and engine.url.database:
            self._storage = _storage(engine.dialect.name)(engine)
            self._readers, self._writers = self._storage.readers, self._storage.writers
            self._write_lock = self._storage.write_lock
        else:
            reading = engine.execution_options(**READS.get(engine.dialect.name, {}))
            self._readers = _Pooled(reading)
            self._writers = _Pooled(engine, WRITES.get(engine.dialect.name))

    @classmethod
    def connect(cls, conf: cfg.ConfigOpts, **overrides: object) -> Database:
        """Connect as `[database]` says; raises `oslo_db.exception.DBError` when it cannot.

        *overrides* are oslo.db's engine options, and go before those of *conf*.
        """
        options = conf.database
        configured = {
            "connection_recycle_time": options.connection_recycle_time,
            "max_pool_size": options.max_pool_size,
            "max_overflow": options.max_overflow,
            "pool_timeout": options.pool_timeout,
            "mysql_sql_mode": options.mysql_sql_mode,
            "max_retries": options.max_retries,
            "retry_interval": options.retry_interval,
        }
        return cls.open(options.connection, **(configured | overrides))

    @classmethod
    def open(cls, url: str, **engine_options: object) -> Database:
        """Connect to *url*, an SQLAlchemy database URL. *engine_options* are oslo.db's.

        Raises `sqlalchemy.exc.ArgumentError` for what is no such URL, `oslo_db.exception.DBError`
        when the database does not answer.
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
        """A session for reading: one consistent view, nothing kept."""
        with self.reading() as connection:
            with _session(connection) as session:
                yield session
            connection.rollback()  # of what the session may have flushed

    @contextmanager
    def write(self) -> Iterator[orm.Session]:
        """A session whose changes are kept when the block ends well, and undone when it raises.

        When it has ended well, they are on the disk.
        """
        with self.writing() as connection, _session(connection) as session, session.begin():
            yield session

    @contextmanager
    def reading(self) -> Iterator[sqlalchemy.Connection]:
        """What `read` is, for statements only: opening a session takes as long as some of them."""
        with self._readers.begun() as connection:
            yield connection

    @contextmanager
    def writing(self, *, linger: bool = False) -> Iterator[sqlalchemy.Connection]:
        """What `write` is, for statements only.

        With *linger*, a database inside the process may bring the changes to the disk a moment later: for changes that
        are better lost in a power cut than waited for, or for a caller that calls `settle` later, after it has
        released a lock. They come before all that is written later, in any case.
        """
        with self._write_lock, self._writers.begun() as connection:
            yield connection
        if self._storage is None:
            return
        if linger:
            self._storage.settle_soon()
        else:
            self._storage.settle()

    def settle(self) -> None:
        """Return when all that was written before is on the disk."""
        if self._storage is not None:
            self._storage.settle()

    def close(self) -> None:
        """Drop every connection."""
        self._readers.close()
        self._writers.close()
        self.engine.dispose()


class _Pooled:
    """Connections of the engine's pool; *first* is the first statement of each transaction."""

    def __init__(self, engine: sqlalchemy.Engine, first: str | None = None) -> None:
        self._engine = engine
        self._first = first

    @contextmanager
    def begun(self) -> Iterator[sqlalchemy.Connection]:
        with self._engine.begin() as connection:
            if self._first:
                connection.exec_driver_sql(self._first)
            yield connection

    def close(self) -> None:
        """The pool is the engine's, which closes it."""


def _storage(dialect: str) -> Any:
    """Return the class of the `Storage` of a dialect."""
    return stevedore_driver.DriverManager(STORAGE, dialect).driver


def _complete(url: str) -> str:
    """Add to *url* what GSaaS needs: on MariaDB and MySQL, all of Unicode.

    oslo.db would ask for `utf8`, which these two take for the three-byte subset, and it knows both
    by the name of `mysql` only.
    """
    parsed = sqlalchemy.make_url(url)
    if parsed.get_backend_name() in ("mysql", "mariadb"):
        parsed = parsed.set(drivername=f"mysql+{parsed.get_driver_name()}")
        parsed = parsed.update_query_dict({"charset": "utf8mb4", **parsed.query})
    return parsed.render_as_string(hide_password=False)


def _session(connection: sqlalchemy.Connection) -> orm.Session:
    return orm.Session(connection, expire_on_commit=False)
