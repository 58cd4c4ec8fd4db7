"""The door to the database: one engine, short sessions that read or write, nothing else.

    database = Database.connect(conf)
    with database.write() as session:
        session.add(models.HostRow(name="gpu1"))

or, for statements that everybody waits for, without one:

    with database.reading() as connection:
        connection.scalar(select(func.count()).select_from(models.GpuRow))

Objects read in a session stay readable after it (they are not expired), as plain values; changing
them then changes nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import sqlalchemy
from oslo_config import cfg
from oslo_db import api as db_api
from oslo_db.sqlalchemy import engines
from sqlalchemy import event, orm

from gsaas.db.journal import Journal
from gsaas.db.prepared import HANDED_OVER, Prepared

retried = db_api.wrap_db_retry(
    max_retries=5,
    retry_interval=0.05,
    inc_retry_interval=True,
    max_retry_interval=0.5,
    retry_on_deadlock=True,
)
"""For functions that write, and may simply be called again when the database ends a deadlock by
giving up their transaction. Decorate what opens the session, not what is called in it."""

READS = {"postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}}
"""What readers need to have one consistent view; elsewhere that is the default."""
WRITES = {"mysql": "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"}
"""What writers say first, to see what others committed, and to lock the rows that they name, not the gaps between.

Under the default, REPEATABLE READ, two claims of neighbouring keys can end in a deadlock.
"""

PAGE_BYTES = 1024
"""Of a new SQLite database. A claim writes a little to each of a dozen pages, and they go to the disk as a whole."""
CHECKPOINT_PAGES = 4000
"""Of SQLite that are written ahead before they go where they belong. Most are written again and again, so rarely is
cheaper; reading is not slower up to here."""


class OvertakenError(Exception):
    """Another transaction was first; this one cannot go on, and may be tried again."""


class Database:
    """Sessions on one SQLAlchemy engine; safe to share between threads."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self.engine = engine
        reading = engine.execution_options(**READS.get(engine.dialect.name, {}))
        self._readers: _Connections = _Pooled(reading)
        self._writers: _Connections = _Pooled(engine, WRITES.get(engine.dialect.name))
        self._turn: threading.Lock | nullcontext = nullcontext()
        self.one_writer = engine.dialect.name == "sqlite"
        """Do transactions that write come one after the other, so that each sees what those before it wrote?"""
        self._journal: Journal | None = None
        """Of a database whose commits are not on the disk by themselves."""
        if engine.dialect.name == "sqlite" and engine.url.database:
            # A transaction that reads first and writes later cannot have the write lock once another has written
            # (SQLITE_BUSY_SNAPSHOT), so writers ask for it when they begin.
            self._readers, self._writers = _Kept(engine, "BEGIN"), _Kept(engine, "BEGIN IMMEDIATE")
            # SQLite has one writer at a time, and whoever finds it busy sleeps for milliseconds.
            self._turn = threading.Lock()
            self._journal = Journal(engine.url.database)

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
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _tune_sqlite)
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

        With *linger*, SQLite may bring the changes to the disk a moment later (`gsaas.db.journal.LINGER`): for what is
        better lost in a power cut than waited for, or for who calls `settle` afterwards, when others need not wait with
        him. They come before all that is written later, in any case.
        """
        with self._turn, self._writers.begun() as connection:
            yield connection
        if linger and self._journal:
            self._journal.settle_soon()
        else:
            self.settle()

    def settle(self) -> None:
        """Return when all that was written before is on the disk."""
        if self._journal:
            self._journal.settle()

    def close(self) -> None:
        """Drop every connection."""
        self._readers.close()
        self._writers.close()
        self.engine.dispose()


class _Pooled:
    """Connections as the engine's pool hands them out; *first* is what is said in each transaction."""

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


class _Kept:
    """Connections to an SQLite file that stay open between transactions, each of which *begin* begins.

    oslo.db has SQLite opened anew for each, which takes longer than most of them do. Here are none of its listeners
    either, which begin transactions: every statement would have to ask whether somebody listens to it.
    """

    def __init__(self, engine: sqlalchemy.Engine, begin: str) -> None:
        self._engine = sqlalchemy.Engine(
            engine.pool,
            engine.dialect,
            engine.url,
            execution_options=engine.get_execution_options().union({HANDED_OVER: True}),
        )
        self._begin = Prepared(sqlalchemy.text(begin))
        self._idle: list[sqlalchemy.Connection] = []
        self._owner = os.getpid()

    @contextmanager
    def begun(self) -> Iterator[sqlalchemy.Connection]:
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
        while self._idle:
            self._idle.pop().close()


_Connections = _Pooled | _Kept


def _complete(url: str) -> str:
    """Say in *url* what we need to be so: on MariaDB and MySQL, all of Unicode.

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


def _tune_sqlite(connection: Any, _record: Any) -> None:
    """Readers never wait for the one writer, and a writer takes its turn instead of failing."""
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")  # the rest is for `Journal` to do
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
