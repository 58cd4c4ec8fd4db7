# SPDX-License-Identifier: Apache-2.0
"""Teaches oslo.db further errors of databases: `DBConnectionError` where one is away, `DBDeadlock` for a lost race.

It recognises the texts of psycopg2, and leaves errors of psycopg as SQLAlchemy raises them. Of a Galera node that has
lost the others it recognises what a statement gets (1047), and not what a commit gets (1180). Of lost races, which may
succeed when they are tried again, it knows deadlocks only. What it is taught here holds for all engines of the process.
"""

from __future__ import annotations

from typing import Any

from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import exc_filters
from sqlalchemy.exc import OperationalError

AWAY = ("08", "57P01", "57P02", "57P03", "53300")
"""How SQLSTATEs begin when a connection is lost or refused: the server ends, starts, or has no more room
(https://www.postgresql.org/docs/current/errcodes-appendix.html)."""


def _raise_outage(
    error: OperationalError, _match: object, _dialect: str, is_disconnect: bool
) -> None:
    """Raise `DBConnectionError` if *error* means that the server is away; else leave it to the filters of oslo.db."""
    state: Any = getattr(error.orig, "sqlstate", None) or ""
    # With neither a statement nor a state of the server's, the connection was to be made.
    no_server = error.statement is None and not state
    if is_disconnect or no_server or state.startswith(AWAY):
        raise db_exception.DBConnectionError(error)


exc_filters.filters("postgresql", OperationalError, ".*")(_raise_outage)


OVERTAKEN = ("40001", "55P03")
"""PostgreSQL's serialization_failure, for an administrator may have made another isolation level than READ COMMITTED
the default, and lock_not_available, after its `lock_timeout`."""


def _raise_lost_race(
    error: OperationalError, _match: object, dialect: str, _is_disconnect: bool
) -> None:
    """Raise `DBDeadlock` if *error* means that another transaction was faster or has the lock."""
    if dialect == "sqlite" or getattr(error.orig, "sqlstate", None) in OVERTAKEN:
        raise db_exception.DBDeadlock(error)


exc_filters.filters("postgresql", OperationalError, ".*")(_raise_lost_race)
exc_filters.filters("sqlite", OperationalError, ".*database is locked")(_raise_lost_race)


COMMIT_FAILED = r".*\(1180,"
"""ER_ERROR_DURING_COMMIT, which a Galera node outside the primary component raises
(https://mariadb.com/kb/en/mariadb-error-code-reference/)."""


def _raise_failed_commit(
    error: OperationalError, _match: object, _dialect: str, _is_disconnect: bool
) -> None:
    """Raise `DBConnectionError`: whether others have the transaction is unknown, as with a lost connection."""
    raise db_exception.DBConnectionError(error)


exc_filters.filters("mysql", OperationalError, COMMIT_FAILED)(_raise_failed_commit)
