"""SQLite files are set up by whichever connection comes first, whatever others do meanwhile."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

from gsaas.db.database import Database


def test_a_new_file_is_switched_to_write_ahead_logging_once_another_connection_has_written_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "gsaas.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as writer:
        writer.execute("CREATE TABLE something (id INTEGER)")
        writer.commit()
        writer.execute("BEGIN IMMEDIATE")

        def stop_writing() -> None:
            time.sleep(0.2)
            writer.rollback()

        thread = threading.Thread(target=stop_writing)
        thread.start()
        database = Database.open(f"sqlite:///{path}", max_retries=0)
        with closing(database), database.reading() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        thread.join()
