"""An SQLite database in memory with all tables; tests/services has the real servers."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from gsaas.db import models
from gsaas.db.database import Database

hypothesis.settings.register_profile("no clock", deadline=None)
hypothesis.settings.load_profile("no clock")


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database.open("sqlite://")
    models.Base.metadata.create_all(database.engine)
    yield database
    database.close()
