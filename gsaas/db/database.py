"""The door to the database: one engine, short sessions that read or write, nothing else.

    database = Database.connect(conf)
    with database.write() as session:
        session.add(models.Host(name="gpu1"))

Objects read in a session stay readable after it (they are not expired), as plain values; changing
them then changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy
from oslo_config import cfg
from oslo_db import api as db_api
from oslo_db.sqlalchemy import engines
from sqlalchemy import event, orm

retried = db_api.wrap_db_retry(
    max_retries=5,
    retry_interval=0.05,
    inc_retry_interval=True,
    max_retry_interval=0.5,
    retry_on_deadlock=True,
)
"""For functions that write, and may simply be called again when the database ends a deadlock by
giving up their transaction. Decorate what opens the session, not what is called in it."""

WRITES = {"gsaas_writes": True}
READS = {"postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}}
"""What readers need to have one consistent view; elsewhere that is the default."""


class Database:
    """Sessions on one SQLAlchemy engine; safe to share between threads."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self.engine = engine
        self._readers = orm.sessionmaker(
            engine.execution_options(**READS.get(engine.dialect.name, {})), expire_on_commit=False
        )
        self._writers = orm.sessionmaker(engine.execution_options(**WRITES), expire_on_commit=False)
        # oslo.db opens an SQLite file for every session, and the last one to close it tidies up behind itself, which
        # costs more than the session. With one connection that only stays, nobody is the last.
        self._stays = engine.connect() if engine.dialect.name == "sqlite" else None

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
        engine = engines.create_engine(_complete(url), sqlite_fk=True, **options)
        if tune := TUNING.get(engine.dialect.name):
            tune(engine)
        return cls(engine)

    @contextmanager
    def read(self) -> Iterator[orm.Session]:
        """A session for reading: one consistent view, nothing kept."""
        with self._readers() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[orm.Session]:
        """A session whose changes are kept when the block ends well, and undone when it raises."""
        with self._writers() as session, session.begin():
            yield session

    def close(self) -> None:
        """Drop every pooled connection."""
        if self._stays is not None:
            self._stays.close()
        self.engine.dispose()


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


def _writes(connection: sqlalchemy.Connection) -> bool:
    return connection.get_execution_options().get("gsaas_writes", False)


def _tune_sqlite(engine: sqlalchemy.Engine) -> None:
    """Readers never wait for the one writer, and a writer takes its turn instead of failing.

    A transaction that reads first and writes later cannot be given the write lock once another has
    written (SQLITE_BUSY_SNAPSHOT), so writers ask for it when they begin.
    """

    @event.listens_for(engine, "connect")
    def _set_pragmas(connection, _record):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA busy_timeout = 30000")

    @event.listens_for(engine, "engine_connect")
    def _silence_plain_begin(connection):
        if _writes(connection):
            connection.info["in_transaction"] = True  # oslo.db's own listener then emits no BEGIN

    @event.listens_for(engine, "begin")
    def _begin_immediate(connection):
        if _writes(connection):
            connection.exec_driver_sql("BEGIN IMMEDIATE")


def _tune_mysql(engine: sqlalchemy.Engine) -> None:
    """Writers see what others committed, and lock the rows they name rather than the gaps between.

    Under the default, REPEATABLE READ, two claims of neighbouring keys can end in a deadlock.
    Readers stay under it: it gives them one consistent view.
    """

    @event.listens_for(engine, "begin")
    def _relax_isolation(connection):
        if _writes(connection):
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")


TUNING = {"sqlite": _tune_sqlite, "mysql": _tune_mysql}
