# SPDX-License-Identifier: Apache-2.0
"""Migrates a database to the tables that this release works with.

    migration.upgrade("sqlite:////var/lib/gsaas/gsaas.sqlite")

Each function takes a database URL or a `Database`. All may be called again at any time; of several that migrate at
once, one does the work and the others wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from oslo_db import exception as db_exception

from gsaas.db.database import Database

LOG = logging.getLogger(__name__)

LOCK = 4733225  # an arbitrary number: PostgreSQL names its advisory locks by numbers
LOCK_TIMEOUT = 600  # seconds


def upgrade(target: str | Database, revision: str = "head") -> None:
    """Make and change tables until the database is at *revision*."""
    with _exclusively(target) as connection:
        command.upgrade(_config(connection), revision)


def downgrade(target: str | Database, revision: str) -> None:
    """Undo every migration after *revision*; `base` leaves an empty database, and no data."""
    with _exclusively(target) as connection:
        command.downgrade(_config(connection), revision)


def version(target: str | Database) -> str | None:
    """Return the revision that a database is at; None for one that was never migrated."""
    with _database(target) as database, database.reading() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head() -> str:
    """Return the revision that this release works with."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None, "no migrations were installed"  # noqa: S101 (a broken package)
    return revision


def knows(revision: str) -> bool:
    """Return whether *revision* belongs to this release, rather than to a newer one."""
    scripts = ScriptDirectory.from_config(_config())
    return revision in {script.revision for script in scripts.walk_revisions()}


def _config(connection: sqlalchemy.Connection | None = None) -> Config:
    config = Config(Path(__file__).with_name("alembic.ini"))
    config.attributes["connection"] = connection
    return config


@contextmanager
def _database(target: str | Database) -> Iterator[Database]:
    if isinstance(target, Database):
        yield target
        return
    database = Database.open(target, max_retries=0)
    try:
        yield database
    finally:
        database.close()


@contextmanager
def _exclusively(target: str | Database) -> Iterator[sqlalchemy.Connection]:
    """Open a transaction that no other migration runs beside; SQLite has no other kind."""
    with _database(target) as database, _alone(database), database.writing() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
        yield connection


@contextmanager
def _alone(database: Database) -> Iterator[None]:
    """On MariaDB and MySQL, hold a lock that other migrations wait for.

    It belongs to a connection of its own, so that it is held until the migration is committed: tables are made outside
    transactions there, but the revision is written in one.
    """
    if database.engine.dialect.name != "mysql":
        yield
        return
    with database.engine.connect() as connection:
        lock = f"SELECT GET_LOCK('gsaas-migration', {LOCK_TIMEOUT})"
        if connection.exec_driver_sql(lock).scalar() != 1:
            raise TimeoutError(f"another migration has run for {LOCK_TIMEOUT} seconds")
        try:
            yield
        finally:
            try:
                connection.exec_driver_sql("SELECT RELEASE_LOCK('gsaas-migration')")
            except db_exception.DBError as error:
                # The server released it when it lost the connection. What the migration has done or raised is kept.
                LOG.warning(
                    "the connection that held the lock of the migration was lost: %s", error
                )
