"""An SQLite database in memory with all tables; tests/services has the real servers."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from gsaas.db.database import Database
from tests.support import sqlite

hypothesis.settings.register_profile("no clock", deadline=None)
hypothesis.settings.load_profile("no clock")


@pytest.fixture
def database() -> Iterator[Database]:
    database = sqlite.in_memory(sqlite.tables())
    yield database
    database.close()
