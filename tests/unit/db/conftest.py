"""An SQLite database in memory; tests/services repeats these tests on real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gsaas.db import migration
from gsaas.db.database import Database


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database.open("sqlite://")
    migration.upgrade(database.engine)
    yield database
    database.close()
