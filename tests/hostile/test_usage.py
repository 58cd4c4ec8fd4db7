# SPDX-License-Identifier: Apache-2.0
"""What a question about usage has the database read: 300,000 leases of other times took it two seconds."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest
import sqlalchemy

from gsaas.db import usage
from gsaas.db.database import Database
from tests.support import sqlite

DAY = datetime.datetime(2026, 11, 1)


@pytest.fixture
def database(tmp_path) -> Iterator[Database]:
    database = sqlite.in_file(tmp_path / "gsaas.db", sqlite.migrated())
    yield database
    database.close()


@pytest.mark.parametrize("project", [None, "blue"])
def test_an_index_answers_without_the_leases_themselves(database, project):
    """SQLite says how it would find the rows of each statement."""
    asked: list[tuple[str, object]] = []
    with database.reading() as connection:
        sqlalchemy.event.listen(
            connection,
            "before_cursor_execute",
            lambda _c, _cursor, statement, values, _context, _many: asked.append(
                (statement, values)
            ),
        )
        more = {} if project is None else {"project_id": project}
        day = datetime.timedelta(days=1)
        usage.by_project(connection, DAY, DAY + day, DAY + 9 * day, **more)
        statements = asked[:]
        plans = [
            row[-1]
            for statement, values in statements
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
        ]
    tables = [step for step in plans if "leases" in step]
    assert tables
    assert [step for step in tables if "USING" not in step] == []
