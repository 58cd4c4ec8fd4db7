"""Statements that everybody waits for, handed to SQLite's driver as they were compiled once.

SQLAlchemy looks each statement up anew, asks who listens to it, and wraps its values and its rows. For a claim and its
return that takes longer than SQLite does. A database server takes its own time for each statement and has more reasons
to refuse it: there SQLAlchemy goes between, and oslo.db tells what the server meant.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from oslo_db import exception as db_exception
from sqlalchemy import Connection, Executable
from sqlalchemy.dialects import sqlite

HANDED_OVER = "gsaas_handed_over"
"""The execution option of a connection to SQLite whose driver may be handed statements: nobody listens to it."""

_DIALECT = sqlite.dialect(paramstyle="named")


class Prepared:
    """A *statement* of SQLAlchemy's Core, which is run with values for its parameters and columns, by name.

    It needs a value for each column that it is to write: the model's defaults are left to the caller. What the database
    refuses is an `oslo_db.exception.DBError`.
    """

    def __init__(self, statement: Executable) -> None:
        self._statement = statement
        self._compiled: dict[tuple[str, ...], _Compiled] = {}

    def rows(self, connection: Connection, **values: Any) -> Sequence[Sequence[Any]]:
        """Return what it finds."""
        if _is_handed_over(connection):
            return self._for(values).rows(connection, values)
        return connection.execute(self._statement, values).all()

    def run(self, connection: Connection, **values: Any) -> int:
        """Return how many rows it has changed."""
        if _is_handed_over(connection):
            return self._for(values).run(connection, values)
        return connection.execute(self._statement, values).rowcount

    def run_all(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run it with each of *rows*, which are one at least, and have the same names."""
        if _is_handed_over(connection):
            self._for(rows[0]).run_all(connection, rows)
        else:
            connection.execute(self._statement, rows)

    def _for(self, values: Mapping[str, Any]) -> _Compiled:
        names = tuple(values)
        if names not in self._compiled:
            self._compiled[names] = _Compiled(self._statement, names)
        return self._compiled[names]


class _Compiled:
    """A statement for values of these *names*, as SQLite takes it. `TypeError` if it needs others."""

    def __init__(self, statement: Executable, names: Sequence[str]) -> None:
        compiled = statement.compile(dialect=_DIALECT, column_keys=list(names))
        columns = getattr(statement, "selected_columns", ())
        left_out = [name for bind, name in compiled.bind_names.items() if bind.required]
        left_out += [
            column.key for column in (*compiled.insert_prefetch, *compiled.update_prefetch)
        ]
        if left_out := sorted(set(left_out) - set(names)):
            raise TypeError(f"no value for {', '.join(left_out)} of {compiled}")
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
        try:
            return connection.connection.driver_connection.execute(self._sql, written)
        except sqlite3.Error as error:
            raise db_exception.DBError(error) from error

    def _read(self, row: Sequence[Any]) -> list[Any]:
        read = list(row)
        for place, process in self._readers:
            read[place] = process(read[place])
        return read


def _is_handed_over(connection: Connection) -> bool:
    return HANDED_OVER in connection.get_execution_options()
