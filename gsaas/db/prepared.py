# SPDX-License-Identifier: Apache-2.0
"""Statements of SQLAlchemy's Core that are executed so often that their overhead matters.

On a database server they are executed like any other statement: the server's time outweighs SQLAlchemy's, and oslo.db
translates its errors. A database inside the process may have a `StatementRunner` of its own, because SQLAlchemy takes
longer for a statement than such a database does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection
from sqlalchemy.sql.base import Executable

RUNNER = "gsaas_statement_runner"
"""The execution option of a connection that names its `StatementRunner`."""


class StatementRunner(Protocol):
    """Runs prepared statements in another way than by SQLAlchemy; raises `oslo_db.exception.DBError`."""

    def rows(
        self, prepared: Prepared, connection: Connection, values: Mapping[str, Any]
    ) -> Sequence[Sequence[Any]]:
        """Run a query and return its rows."""

    def run(self, prepared: Prepared, connection: Connection, values: Mapping[str, Any]) -> int:
        """Run a statement and return how many rows it has changed."""

    def run_all(
        self, prepared: Prepared, connection: Connection, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Run a statement with each of *rows*."""


class Prepared:
    """A *statement*, which is executed with values for its parameters and columns, by name.

    It needs a value for each column that it writes: defaults of the model are not applied. Raises
    `oslo_db.exception.DBError` if the database refuses it.
    """

    def __init__(self, statement: Executable) -> None:
        self.statement = statement

    def rows(self, connection: Connection, **values: Any) -> Sequence[Sequence[Any]]:
        """Execute it and return the rows that it selects."""
        if (runner := _runner(connection)) is not None:
            return runner.rows(self, connection, values)
        return connection.execute(self.statement, values).all()

    def run(self, connection: Connection, **values: Any) -> int:
        """Execute it and return how many rows it has changed."""
        if (runner := _runner(connection)) is not None:
            return runner.run(self, connection, values)
        return connection.execute(self.statement, values).rowcount

    def run_all(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Execute it with each of *rows*: at least one, all with the same names."""
        if (runner := _runner(connection)) is not None:
            runner.run_all(self, connection, rows)
        else:
            connection.execute(self.statement, rows)


def _runner(connection: Connection) -> StatementRunner | None:
    runner: StatementRunner | None = connection.get_execution_options().get(RUNNER)
    return runner
