# SPDX-License-Identifier: Apache-2.0
"""SQLite files are set up by whichever connection comes first, whatever others do meanwhile."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gsaas.db.database import Database


def test_a_new_file_is_switched_to_write_ahead_logging_once_another_connection_has_written_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gsaas.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("CREATE TABLE something (id INTEGER)")
        writer.commit()
        writer.execute("BEGIN IMMEDIATE")

        monkeypatch.setattr("gsaas.db.sqlite.time.sleep", lambda _seconds: writer.rollback())
        database = Database.open(f"sqlite:///{path}")
        with closing(database), database.reading() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
