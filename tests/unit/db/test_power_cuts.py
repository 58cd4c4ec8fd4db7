# SPDX-License-Identifier: Apache-2.0
"""What of an SQLite file is on the disk when a commit was answered: what was there at the last sync is all there is.

The process that writes is one of its own, in which SQLite's own syncs are observed, and made to fail.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.disk import Disk

pytestmark = pytest.mark.slow

WRITER = """
import sys, threading
from oslo_db import exception
from sqlalchemy import text
from gsaas.db.database import Database

database = Database.open(f"sqlite:///{sys.argv[1]}")
database.on_storage_failure(lambda: print("failure", flush=True))

def put(number, ballast=2000):
    with database.writing() as connection:
        connection.execute(text(f"INSERT INTO numbers VALUES ({number}, zeroblob({ballast}))"))

def put_in_session(number):
    with database.write() as session:
        session.execute(text(f"INSERT INTO numbers VALUES ({number}, NULL)"))

def put_and_fail(number):
    try:
        put(number)
    except exception.DBConnectionError as error:
        return "disk I/O error" in str(error)

def put_by_threads(numbers):
    threads = [threading.Thread(target=put, args=[number]) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

def numbers():
    with database.reading() as connection:
        return list(connection.scalars(text("SELECT n FROM numbers ORDER BY n")))

with database.writing() as connection:
    connection.execute(text("CREATE TABLE numbers (n INTEGER, ballast BLOB)"))
for line in sys.stdin:
    print(repr(eval(line)), flush=True)
"""


class Writer:
    """A process that writes numbers to a database on a disk that can fail."""

    def __init__(self, folder: Path) -> None:
        self.disk = Disk(folder / "disk")
        self._folder = folder
        self._cuts = 0
        (folder / "writer.py").write_text(WRITER)
        self.process = subprocess.Popen(
            [sys.executable, folder / "writer.py", folder / "numbers.db"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("w"),
            text=True,
            env={**os.environ, **self.disk.environment},
        )

    def do(self, call: str) -> str:
        """Make *call*; return what the process writes next."""
        self.process.stdin.write(f"{call}\n")
        self.process.stdin.flush()
        return self.line()

    def line(self) -> str:
        return self.process.stdout.readline().strip()

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    def after_a_power_cut(self) -> list[int]:
        """Return the numbers that are there when the machine is up again."""
        self._cuts += 1
        files = self.disk.after_a_power_cut(self._folder / f"cut-{self._cuts}")
        with closing(sqlite3.connect(files / "numbers.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return [number for (number,) in connection.execute("SELECT n FROM numbers ORDER BY n")]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path)
    with writer.process:
        yield writer
        writer.process.stdin.close()


def test_what_was_written_survives_a_power_cut(writer):
    writer.do("put(1)")
    assert writer.after_a_power_cut() == [1]
    writer.do("put_in_session(2)")
    assert writer.after_a_power_cut() == [1, 2]


def test_what_threads_write_at_once_survives_a_power_cut(writer):
    writer.do("put_by_threads(range(20))")
    assert writer.after_a_power_cut() == list(range(20))


def test_what_sqlite_has_copied_from_its_log_survives_a_power_cut(writer, tmp_path):
    """SQLite copies every 1000 pages, of 4 KiB."""
    writer.do("[put(number, 40_000) for number in range(150)] and None")
    assert (tmp_path / "disk" / "kept" / "numbers.db").stat().st_size > 150 * 40_000 / 2
    assert writer.after_a_power_cut() == list(range(150))


def test_a_disk_that_fails_is_announced_once_and_not_trusted_again(writer):
    writer.do("put(1)")
    writer.disk.fail()
    assert writer.do("put_and_fail(2)") == "failure"
    assert writer.line() == "True"
    writer.disk.mend()  # the kernel tells only once
    assert writer.do("put_and_fail(3)") == "True"
    # The second one was refused, but SQLite may find it in its log. The third one is not even written.
    assert writer.do("numbers()") in ("[1]", "[1, 2]")
    assert 1 in writer.after_a_power_cut()
    assert "restart the service" in writer.log
