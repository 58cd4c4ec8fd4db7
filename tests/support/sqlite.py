# SPDX-License-Identifier: Apache-2.0
"""SQLite databases that are there at once: copies of one that was made before, whose statements are compiled.

Making the tables takes longer than most tests do, and so does compiling statements: SQLAlchemy does it for each engine.
No commit waits for the disk, either: tests/unit/db/test_power_cuts.py, which cuts the power, has databases of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar, overload

from sqlalchemy import event
from sqlalchemy.engine import Dialect

from gsaas.db import migration, models
from gsaas.db.database import Database

D = TypeVar("D", bound=Database)

_COMPILED: dict[Any, Any] = {}
"""Statements, by themselves and by their dialect, which is why all databases share one."""
_VERSIONS = slice(18, 20)
"""Where a file says which versions of its format write and read it; 2 is the one with a write-ahead log."""


@overload
def opened(url: str) -> Database: ...


@overload
def opened(url: str, kind: type[D]) -> D: ...


def opened(url: str, kind: type[Database] = Database) -> Database:
    """Open the SQLite database at *url*, with the statements that were compiled for other databases."""
    engine = kind.open(url).engine
    engine.dialect = _DIALECT
    engine.update_execution_options(compiled_cache=_COMPILED)
    event.listen(engine, "connect", _do_not_wait)
    with closing(engine.raw_connection()) as first:
        _do_not_wait(first.driver_connection, None)
    return kind(engine)


def image(fill: Callable[[Database], object]) -> bytes:
    """Return the content of a database as *fill* leaves it, for `in_memory` or `in_file`."""
    database = opened("sqlite://")
    fill(database)
    with closing(database.engine.raw_connection()) as connection:
        driver_connection: Any = connection.driver_connection
        content: bytes = driver_connection.serialize()
    database.close()
    return content


def in_memory(content: bytes) -> Database:
    """A database in memory that holds *content*."""
    database = opened("sqlite://")
    with closing(database.engine.raw_connection()) as connection:
        driver_connection: Any = connection.driver_connection
        driver_connection.deserialize(content)
    return database


def in_file(path: Path, content: bytes) -> Database:
    """A database in a new file that holds *content*."""
    made = bytearray(content)
    made[_VERSIONS] = b"\2\2"  # so that no connection has to switch it, which waits for the disk
    path.write_bytes(made)
    return opened(f"sqlite:///{path}")


@functools.cache
def tables() -> bytes:
    """A database with every table, and nothing in them."""
    return image(lambda database: models.Base.metadata.create_all(database.engine))


@functools.cache
def migrated() -> bytes:
    """The same, as migrations make it."""
    return image(lambda database: migration.upgrade(database))


def _do_not_wait(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")


def _dialect() -> Dialect:
    """One that has seen a connection."""
    database = Database.open("sqlite://")
    database.close()
    return database.engine.dialect


_DIALECT = _dialect()
