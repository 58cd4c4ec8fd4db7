# SPDX-License-Identifier: Apache-2.0
"""Writes rows that may exist already, in one statement on each of the three databases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, inspect
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import Session

from gsaas.db.models import Base


def upsert(session: Session, model: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert *rows*, all of the same columns, or overwrite those columns where a row has the same primary key.

    An INSERT that is followed by an UPDATE if it fails would be sufficient on two of the databases. On MariaDB, several
    transactions whose INSERT failed would then share a lock that each of them needs exclusively: a deadlock.
    """
    if not rows:
        return
    keys = {column.name for column in inspect(model).primary_key}
    dialect = session.get_bind().dialect.name
    if dialect == "mysql":
        statement = mysql.insert(model)
        new = {name: statement.inserted[name] for name in _changing(model, rows[0], keys)}
        statement = statement.on_duplicate_key_update(new)
    else:
        statement = {"postgresql": postgresql, "sqlite": sqlite}[dialect].insert(model)
        new = {name: statement.excluded[name] for name in _changing(model, rows[0], keys)}
        statement = statement.on_conflict_do_update(index_elements=sorted(keys), set_=new)
    session.execute(statement, list(rows))


def accumulate(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    changes: Callable[[Any], Mapping[str, Any]],
) -> None:
    """Insert *rows*, all of the same columns, or change the row that has the same primary key.

    *changes* gets the columns of the new row, and returns the values of the columns that change, in terms of these and
    of the columns of *table*, which have their old values. Only MariaDB gives a column that comes later in the mapping
    the new values of those before it: a column that others are computed from comes after them. Constants are
    `literal_column`: PyMySQL admits no parameters there if there are several rows.
    """
    if not rows:
        return
    dialect = connection.dialect.name
    if dialect == "mysql":
        statement = mysql.insert(table)
        statement = statement.on_duplicate_key_update(list(changes(statement.inserted).items()))
    else:
        statement = {"postgresql": postgresql, "sqlite": sqlite}[dialect].insert(table)
        keys = [column.name for column in table.primary_key]
        statement = statement.on_conflict_do_update(
            index_elements=keys, set_=dict(changes(statement.excluded))
        )
    connection.execute(statement, list(rows))


def _changing(model: type[Base], row: Mapping[str, Any], keys: set[str]) -> list[str]:
    """Return the columns to overwrite: those that are given, and those that change with every update."""
    automatic = {column.name for column in inspect(model).columns if column.onupdate is not None}
    # With nothing to overwrite, overwriting a key by itself is valid on all three databases.
    return sorted((row.keys() | automatic) - keys or keys)
