# SPDX-License-Identifier: Apache-2.0
"""Sessions: what readers leave behind, and what they can still look at."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy
from oslo_db import exception as db_exception

from gsaas.db import clock, dialects, models
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


def test_what_the_number_of_a_change_failed_with_is_raised_itself(database):
    """Not as an error of the statement that needed the number: lost races and connections are to be recognised."""
    gpu = models.GpuRow(
        uuid="GPU-1",
        host_name="gpu-1",
        device_index=0,
        model="A100",
        memory_mb=1024,
        daemon_port=50000,
    )
    models.Base.metadata.tables["gpu_writers"].drop(database.engine)
    with pytest.raises(db_exception.DBNonExistentTable), database.write() as session:
        session.add(gpu)


class AskedForTheTime:
    """A database server with its own clock, and the threads that ask for it."""

    def __init__(self, monkeypatch) -> None:
        self.clock = clock.DatabaseClock(self._connect)
        self.time = datetime.datetime(2030, 1, 1)
        self.connections = 0
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        monkeypatch.setattr(clock, "now", lambda _connection: self._answer())

    @contextmanager
    def _connect(self) -> Iterator[None]:
        self.connections += 1
        yield None

    def _answer(self) -> datetime.datetime:
        self.asked.set()
        assert self.may_answer.wait(30)
        return self.time

    def forget(self, monkeypatch) -> None:
        """Let what was told be too old."""
        monkeypatch.setattr(clock, "ASKED_EVERY", -1.0)


def test_one_thread_asks_for_the_time_and_others_go_on_with_what_they_know(monkeypatch):
    server = AskedForTheTime(monkeypatch)
    first = server.clock.now()
    server.forget(monkeypatch)
    server.asked.clear()
    server.may_answer.clear()
    server.time += datetime.timedelta(days=1)
    with ThreadPoolExecutor(1) as pool:
        asks = pool.submit(server.clock.now)
        assert server.asked.wait(30)
        assert server.connections == 2
        for _ in range(64):
            assert server.clock.now() - first < datetime.timedelta(hours=1)
        assert server.connections == 2
        server.may_answer.set()
        assert asks.result() - first > datetime.timedelta(hours=23)


def test_threads_that_know_no_time_yet_let_one_ask(monkeypatch):
    server = AskedForTheTime(monkeypatch)
    server.may_answer.clear()
    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(server.clock.now) for _ in range(8)]
        assert server.asked.wait(30)
        server.may_answer.set()
        assert all(each.result().year == 2030 for each in asking)
    assert server.connections == 1


def test_a_database_that_did_not_tell_the_time_is_asked_again(monkeypatch):
    server = AskedForTheTime(monkeypatch)
    broken = True

    def answer(_connection):
        if broken:
            raise RuntimeError("the database does not answer")
        return server.time

    monkeypatch.setattr(clock, "now", answer)
    with pytest.raises(RuntimeError):
        server.clock.now()
    broken = False
    assert server.clock.now().year == 2030


@pytest.mark.parametrize(
    ("url", "is_mariadb", "version", "can"),
    [
        ("mysql+pymysql://", True, (10, 5, 29), False),
        ("mysql+pymysql://", True, (10, 6, 4), True),
        ("mysql+pymysql://", True, (11, 4), True),
        ("mysql+pymysql://", False, (5, 7, 44), False),
        ("mysql+pymysql://", False, (8, 0, 36), True),
        ("postgresql+psycopg://", False, (13, 2), True),
        ("sqlite://", False, (3, 40, 1), False),
    ],
)
def test_which_servers_can_skip_locked_rows(url, is_mariadb, version, can):
    engine = sqlalchemy.create_engine(url)
    engine.dialect.is_mariadb = is_mariadb
    engine.dialect.server_version_info = version

    assert dialects.can_skip_locked(engine.dialect) is can
