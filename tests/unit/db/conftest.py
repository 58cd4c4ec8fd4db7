# SPDX-License-Identifier: Apache-2.0
"""An SQLite database in memory; tests/services/db repeats these tests on real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gsaas.db.database import Database
from tests.support import sqlite


@pytest.fixture
def database() -> Iterator[Database]:
    database = sqlite.in_memory(sqlite.migrated())
    yield database
    database.close()
