# SPDX-License-Identifier: Apache-2.0
"""Teaches oslo.db that a database answers and cannot store: for instance, because its disk is full.

Nothing is lost then: the transaction is rolled back, and the next one succeeds once the cause is gone. A disk that does
not keep what it was given is another matter (`gsaas.db.sqlite.Disk`).
"""

from __future__ import annotations

import sqlite3
from typing import Any

from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import exc_filters
from sqlalchemy import Connection, delete, insert
from sqlalchemy.exc import DatabaseError

from gsaas.db.models import SettingRow, table_of

FULL = "the disk of the database is full: the operator of this service has to make room on it"
READ_ONLY = (
    "the database cannot be written, only read: the operator of this service has to look at its files, their file "
    "system, and whether the server is a standby"
)
DAMAGED = (
    "the file of the database is damaged: the operator of this service has to restore a backup"
)

REASONS: dict[object, str] = {
    **dict.fromkeys((sqlite3.SQLITE_FULL, "53100", 1021, 1114), FULL),
    **dict.fromkeys((sqlite3.SQLITE_READONLY, "25006", 1290, 1792, 1836), READ_ONLY),
    **dict.fromkeys((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB), DAMAGED),
}
"""SQLite's primary result code, PostgreSQL's SQLSTATE or MariaDB's and MySQL's error number -> what is wrong, and what
to do. Those of MariaDB have four digits, those of SQLite two."""


class CannotStoreError(db_exception.DBError):  # type: ignore[misc]  # oslo.db has no types
    """The database could not store a transaction, and has forgotten it."""

    def __init__(self, error: DatabaseError, reason: str) -> None:
        super().__init__(error)
        self.reason = reason
        """What is wrong, and what to do: a sentence for users and operators."""


_SETTINGS = table_of(SettingRow)
_PROBE = "whether the database can store something"
_BALLAST = "." * 65536
"""More than most transactions write: room for a small row there may be in what is on the disk already."""


def write_something(connection: Connection) -> None:
    """Write a row and delete it again, so that the commit has something to store."""
    connection.execute(insert(_SETTINGS).values(name=_PROBE, value=_BALLAST))
    connection.execute(delete(_SETTINGS).where(_SETTINGS.c.name == _PROBE))


def _raise_cannot_store(
    error: DatabaseError, _match: object, _dialect: str, _is_disconnect: bool
) -> None:
    """Raise `CannotStoreError` if that is what *error* means; else leave it to the other filters."""
    if reason := REASONS.get(_code(error.orig)):
        raise CannotStoreError(error, reason)


def _code(error: Any) -> object:
    """Return what a driver's error has of the codes of `REASONS`."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what the extended code adds
    return getattr(error, "sqlstate", None) or next(iter(getattr(error, "args", ())), None)


for _name in ("sqlite", "postgresql", "mysql"):
    exc_filters.filters(_name, DatabaseError, ".*")(_raise_cannot_store)
