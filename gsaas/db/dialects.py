# SPDX-License-Identifier: Apache-2.0
"""What the databases can do, and how they are told to: all that depends on the kind of a database, but no statement."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Dialect

SNAPSHOT: dict[str, dict[str, Any]] = {
    "postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
}
"""Dialect -> options with which all queries of a reader see one snapshot."""

SNAPSHOT_FIRST = {"mysql": "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"}
"""Dialect -> the first statement of a reader that has the same effect, and is faster there."""

LOOKUP: dict[str, dict[str, Any]] = {"postgresql": {"isolation_level": "AUTOCOMMIT"}}
"""Dialect -> options with which a single query is a transaction: two round trips less, where that is the driver's own
business. MariaDB and MySQL would have to be told before and after."""

MARIADB_SKIPS_LOCKED = (10, 6)
MYSQL_SKIPS_LOCKED = (8, 0, 1)
"""The first versions with `SKIP LOCKED`; PostgreSQL has had it since 9.5."""


def exact_collation(dialect: Dialect) -> str:
    """Return the collation of MariaDB or MySQL under which two texts are equal if all of their characters are.

    Under their other binary collation of UTF-8, `utf8mb4_bin`, spaces at the end of a text do not count. MariaDB has
    this one since 10.2, MySQL since 8.0.17.
    """
    is_mariadb = getattr(dialect, "is_mariadb", False)
    return "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"


def has_one_writer(dialect: Dialect) -> bool:
    """Return whether transactions that write come one after the other: each sees what those before it wrote."""
    return dialect.name == "sqlite"


def can_skip_locked(dialect: Dialect) -> bool:
    """Return whether a statement can leave out rows that other transactions have locked (`SKIP LOCKED`)."""
    if dialect.name != "mysql":
        return dialect.name == "postgresql"
    since = MARIADB_SKIPS_LOCKED if getattr(dialect, "is_mariadb", False) else MYSQL_SKIPS_LOCKED
    return (dialect.server_version_info or ()) >= since
