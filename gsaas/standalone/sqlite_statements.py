# SPDX-License-Identifier: Apache-2.0
"""Prepared statements handed to SQLite's driver as they were compiled once.

SQLAlchemy looks each statement up anew, asks which listeners it has, and wraps its values and its rows. For a claim
and its return that takes longer than SQLite does.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, cast

from oslo_db import exception as db_exception
from sqlalchemy import ClauseElement, Connection
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.compiler import SQLCompiler

from gsaas.db.prepared import Prepared

_DIALECT = sqlite.dialect(paramstyle="named")
_DUPLICATES = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)


class SqliteStatements:
    """A `gsaas.db.prepared.StatementRunner`; safe to share between threads and databases."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[Prepared, tuple[str, ...]], _Compiled] = {}

    def rows(
        self, prepared: Prepared, connection: Connection, values: Mapping[str, Any]
    ) -> Sequence[Sequence[Any]]:
        """Run a query and return its rows."""
        return self._for(prepared, values).rows(connection, values)

    def run(self, prepared: Prepared, connection: Connection, values: Mapping[str, Any]) -> int:
        """Run a statement and return how many rows it has changed."""
        return self._for(prepared, values).run(connection, values)

    def run_all(
        self, prepared: Prepared, connection: Connection, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Run a statement with each of *rows*: at least one, all with the same names."""
        self._for(prepared, rows[0]).run_all(connection, rows)

    def _for(self, prepared: Prepared, values: Mapping[str, Any]) -> _Compiled:
        key = prepared, tuple(values)
        try:
            return self._compiled[key]
        except KeyError:
            return self._compiled.setdefault(key, _Compiled(prepared, key[1]))


class _Compiled:
    """A statement for values of these *names*, as SQLite takes it. Raises `TypeError` if it needs other values."""

    def __init__(self, prepared: Prepared, names: Sequence[str]) -> None:
        statement = cast(ClauseElement, prepared.statement)
        compiled = cast(SQLCompiler, statement.compile(dialect=_DIALECT, column_keys=list(names)))
        columns = getattr(statement, "selected_columns", ())
        left_out = [name for bind, name in compiled.bind_names.items() if bind.required]
        left_out += [
            column.key for column in (*compiled.insert_prefetch, *compiled.update_prefetch)
        ]
        if missing := sorted(set(left_out) - set(names)):
            raise TypeError(f"no value for {', '.join(missing)} of {compiled}")
        self._sql = str(compiled)
        self._writers = {
            name: process
            for bind, name in compiled.bind_names.items()
            if (process := bind.type.dialect_impl(_DIALECT).bind_processor(_DIALECT))
        }
        self._readers = [
            (place, process)
            for place, column in enumerate(columns)
            if (process := column.type.dialect_impl(_DIALECT).result_processor(_DIALECT, None))
        ]
        self._fixed = {name: value for name, value in compiled.params.items() if name not in names}

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> list[Sequence[Any]]:
        rows = self._execute(connection, values).fetchall()
        return [self._read(row) for row in rows] if self._readers else rows

    def run(self, connection: Connection, values: Mapping[str, Any]) -> int:
        return self._execute(connection, values).rowcount

    def run_all(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            self._execute(connection, row)

    def _execute(self, connection: Connection, values: Mapping[str, Any]) -> sqlite3.Cursor:
        written = {**self._fixed, **values}
        for name, process in self._writers.items():
            written[name] = process(written[name])
        driver: Any = connection.connection.driver_connection  # a `sqlite3.Connection`
        try:
            cursor: sqlite3.Cursor = driver.execute(self._sql, written)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) in _DUPLICATES:
                raise db_exception.DBDuplicateEntry(inner_exception=error) from error
            raise db_exception.DBError(error) from error
        return cursor

    def _read(self, row: Sequence[Any]) -> list[Any]:
        read = list(row)
        for place, process in self._readers:
            read[place] = process(read[place])
        return read
