# SPDX-License-Identifier: Apache-2.0
"""What is on the disk, seen by cutting the power: what was there at the last sync is all there is."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from oslo_db import exception as db_exception
from sqlalchemy import text

from gsaas.db.database import Database
from tests.support.waiting import until


class Disk:
    """A disk that can lose its power: it keeps what SQLite's file and journal were at the last sync."""

    def __init__(self, folder: Path) -> None:
        self.file, self._kept = folder / "gsaas.db", folder / "kept"
        self._kept.mkdir()
        self.syncs = 0
        self.lets_pass = threading.Event()
        self.lets_pass.set()
        self.error: OSError | None = None

    def sync(self, _descriptor: int) -> None:
        for part in (self.file, self.file.with_name("gsaas.db-wal")):
            shutil.copy(part, self._kept)
        self.syncs += 1
        assert self.lets_pass.wait(20)
        if self.error:
            raise self.error

    def after_a_power_cut(self) -> list[int]:
        """The numbers that are there when the machine is up again."""
        if not self.syncs:
            return []
        connection = sqlite3.connect(
            shutil.copytree(self._kept, self._kept.with_name("back"), dirs_exist_ok=True)
            / "gsaas.db"
        )
        numbers = [number for (number,) in connection.execute("SELECT n FROM numbers ORDER BY n")]
        connection.close()
        return numbers


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(tmp_path)
    monkeypatch.setattr(os, "fdatasync", disk.sync)
    return disk


@pytest.fixture
def database(disk: Disk) -> Iterator[Database]:
    database = Database.open(f"sqlite:///{disk.file}")
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE numbers (n INTEGER)"))
    yield database
    database.close()


def put(database: Database, number: int, **how: bool) -> None:
    with database.writing(**how) as connection:
        connection.execute(text(f"INSERT INTO numbers VALUES ({number})"))


def test_what_was_written_survives_a_power_cut(database, disk):
    put(database, 1)
    assert disk.after_a_power_cut() == [1]
    with database.write() as session:
        session.execute(text("INSERT INTO numbers VALUES (2)"))
    assert disk.after_a_power_cut() == [1, 2]


def test_what_is_committed_asynchronously_is_on_the_disk_a_moment_later(database, disk):
    put(database, 1, async_commit=True)
    until(lambda: disk.after_a_power_cut() == [1], "the sync that no thread waits for", 20)


def test_an_asynchronous_commit_is_never_lost_without_the_later_ones(database, disk):
    put(database, 1, async_commit=True)
    put(database, 2)
    assert disk.after_a_power_cut() == [1, 2]


def test_a_commit_that_a_later_sync_included_needs_no_sync_of_its_own(database, disk):
    put(database, 1, async_commit=True)
    put(database, 2)
    before = disk.syncs
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()
    assert disk.syncs == before


def test_writers_do_not_wait_for_each_others_trip_and_share_the_next_one(database, disk):
    disk.lets_pass.clear()
    before = disk.syncs
    writers = [threading.Thread(target=put, args=(database, number)) for number in range(20)]
    for writer in writers:
        writer.start()
    until(lambda: len(numbers(database)) == 20, "all to be committed", 20)
    disk.lets_pass.set()
    for writer in writers:
        writer.join()
    assert disk.after_a_power_cut() == list(range(20))
    assert disk.syncs - before <= 2


def test_what_failed_makes_no_trip(database, disk):
    before = disk.syncs
    with pytest.raises(RuntimeError), database.writing():
        raise RuntimeError
    assert disk.syncs == before


def test_a_disk_that_fails_is_not_believed_again(database, disk, caplog):
    disk.error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(db_exception.DBError, match="Input/output error"):
        put(database, 1)
    disk.error = None  # the kernel tells only once
    with pytest.raises(db_exception.DBError, match="Input/output error"):
        put(database, 2)
    assert numbers(database) == [1]  # the second one is not even written
    assert "restart the service" in caplog.text


def test_a_disk_that_fails_is_announced_once(database, disk):
    announced = []
    database.on_storage_failure(lambda: announced.append(threading.current_thread()))
    put(database, 1)
    assert announced == []
    disk.error = OSError(errno.EIO, "Input/output error")
    put(database, 2, async_commit=True)  # which no thread waits for
    until(lambda: announced, "the sync")
    with pytest.raises(db_exception.DBConnectionError):
        put(database, 3)
    assert len(announced) == 1


@contextmanager
def no_file_to_open() -> Iterator[None]:
    """Let this process open no further file."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_journal_that_cannot_be_opened_is_not_on_the_disk(database, caplog):
    put(database, 1)
    with no_file_to_open(), pytest.raises(db_exception.DBConnectionError, match="Too many open"):
        put(database, 2)
    with pytest.raises(db_exception.DBConnectionError, match="Too many open"):
        put(database, 3)
    assert numbers(database) == [1, 2]
    assert "restart the service" in caplog.text


def test_a_journal_that_cannot_be_opened_later_is_announced(database):
    announced = threading.Event()
    database.on_storage_failure(announced.set)
    put(database, 1)
    with no_file_to_open():
        put(database, 2, async_commit=True)
        assert announced.wait(20)
    with pytest.raises(db_exception.DBConnectionError):
        put(database, 3)


def test_an_error_of_a_sync_that_no_thread_waits_for_is_logged(database, disk, caplog):
    def fail() -> None:
        raise LookupError("nobody to tell")

    database.on_storage_failure(fail)
    disk.error = OSError(errno.EIO, "Input/output error")
    put(database, 1, async_commit=True)
    until(lambda: "LookupError: nobody to tell" in caplog.text, "the message")


def numbers(database: Database) -> list[int]:
    with database.reading() as connection:
        return list(connection.scalars(text("SELECT n FROM numbers")))
