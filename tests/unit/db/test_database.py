# SPDX-License-Identifier: Apache-2.0
"""Sessions: what readers leave behind, and what they can still look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gsaas.db import models
from gsaas.db.database import Database


@pytest.fixture(params=["in memory", "on disk"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """With one host."""
    place = "" if request.param == "in memory" else f"/{tmp_path}/gsaas.db"
    database = Database.open(f"sqlite://{place}")
    models.Base.metadata.create_all(database.engine)
    with database.write() as session:
        session.add(models.HostRow(name="gpu-1"))
    yield database
    database.close()


def test_what_a_reader_changes_is_not_kept(database):
    with database.read() as session:
        session.get(models.HostRow, "gpu-1").disabled = True
        session.flush()
    with database.read() as session:
        assert session.get(models.HostRow, "gpu-1").disabled is False


def test_what_was_read_stays_readable(database):
    with database.read() as session:
        host = session.get(models.HostRow, "gpu-1")
    assert (host.name, host.disabled) == ("gpu-1", False)


def test_what_a_writer_changes_is_kept_unless_it_fails(database):
    with pytest.raises(RuntimeError), database.write() as session:
        session.get(models.HostRow, "gpu-1").disabled = True
        session.flush()
        raise RuntimeError
    with database.read() as session:
        assert session.get(models.HostRow, "gpu-1").disabled is False
    with database.write() as session:
        session.get(models.HostRow, "gpu-1").disabled = True
    with database.read() as session:
        assert session.get(models.HostRow, "gpu-1").disabled is True
