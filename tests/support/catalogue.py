# SPDX-License-Identifier: Apache-2.0
"""What a database says of itself, in a form that can be compared: asked of its own catalogue."""

from __future__ import annotations

import re

import sqlalchemy

Schema = dict[str, str]


def schema(engine: sqlalchemy.Engine) -> Schema:
    """Return each table's definition: columns, keys, indexes and checks, as the server has it."""
    with engine.connect() as connection:
        tables = _READERS[connection.dialect.name](connection)
    tables.pop("alembic_version", None)
    return tables


def checks(engine: sqlalchemy.Engine) -> set[str]:
    """Return the names of all check constraints."""
    query = _CHECKS[engine.dialect.name]
    with engine.connect() as connection:
        found = {row[0] for row in connection.exec_driver_sql(query)}
    if engine.dialect.name == "sqlite":
        found = {name for sql in found for name in re.findall(r"CONSTRAINT (\w+) CHECK", sql)}
    return found


_CHECKS = {
    "sqlite": "SELECT sql FROM sqlite_master WHERE type = 'table'",
    # A JSON column is a LONGTEXT with a check of the column's own name, which is not ours.
    "mysql": "SELECT constraint_name FROM information_schema.check_constraints"
    " WHERE constraint_schema = DATABASE() AND constraint_name LIKE 'ck%%'",
    "postgresql": "SELECT conname FROM pg_constraint WHERE contype = 'c'"
    " AND connamespace = 'public'::regnamespace",
}


def _sqlite(connection: sqlalchemy.Connection) -> Schema:
    query = (
        "SELECT tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        " AND tbl_name NOT LIKE 'sqlite!_%' ESCAPE '!'"  # its own table of AUTOINCREMENT
        " ORDER BY type DESC, name"
    )
    tables: Schema = {}
    for table, sql in connection.exec_driver_sql(query):
        # A column that was added later stands in the line of the one before it.
        sql = re.sub(r"(?<=[A-Z)]), (?=\w+ [A-Z])", "\n", sql)
        # A check that was added later stands in the line of its column.
        sql = re.sub(r"(?<=NULL) (?=CONSTRAINT \w+ CHECK)", "\n", sql)
        tables[table] = f"{tables.get(table, '')}{_sorted_lines(sql)}\n"
    return tables


def _mysql(connection: sqlalchemy.Connection) -> Schema:
    names = connection.exec_driver_sql("SHOW TABLES").scalars().all()
    definitions = (connection.exec_driver_sql(f"SHOW CREATE TABLE {name}").one() for name in names)
    return {name: _sorted_lines(definition) for name, definition in definitions}


def _postgresql(connection: sqlalchemy.Connection) -> Schema:
    columns = """
        SELECT table_name, concat_ws(' ', ordinal_position, column_name, data_type,
               character_maximum_length, is_nullable, column_default)
        FROM information_schema.columns WHERE table_schema = 'public'"""
    constraints = """
        SELECT conrelid::regclass::text, conname || ' ' || pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace"""
    indexes = "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'"
    tables: dict[str, list[str]] = {}
    for query in (columns, constraints, indexes):
        for table, text in connection.exec_driver_sql(query):
            tables.setdefault(table, []).append(text)
    return {table: "\n".join(sorted(lines)) for table, lines in tables.items()}


def _sorted_lines(definition: str) -> str:
    """The order in which keys and constraints were added means nothing."""
    return "\n".join(sorted(line.strip(" ,\t") for line in definition.splitlines()))


_READERS = {"sqlite": _sqlite, "mysql": _mysql, "postgresql": _postgresql}
