# SPDX-License-Identifier: Apache-2.0
"""Sessions keep their promises under concurrency, on every database that GSaaS supports."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest
from sqlalchemy import event, insert, select, update

from gsaas import exceptions
from gsaas.db import endpoints, gpus, hosts, leases, migration, pooling
from gsaas.db.database import Database, retried
from gsaas.db.models import GpuRow, HostRow
from gsaas.objects.lifecycle import Event
from tests.support import rows
from tests.support.databases import Server
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.services

T = TypeVar("T")
MANY = 8


def at_once(action: Callable[[int], T]) -> list[T]:
    """Call *action* with 0, 1, … in so many threads, all let go at the same moment."""
    barrier = threading.Barrier(MANY, timeout=PATIENCE)

    def start(number: int) -> T:
        barrier.wait()
        return action(number)

    with ThreadPoolExecutor(MANY) as pool:
        return list(pool.map(start, range(MANY)))


def test_a_write_that_raises_leaves_nothing(database: Database):
    with pytest.raises(RuntimeError), database.write() as session:
        session.add(rows.host())
        session.flush()
        raise RuntimeError
    with database.read() as session:
        assert session.scalars(select(HostRow)).all() == []


def test_a_reader_keeps_one_view_while_others_write(database: Database):
    with database.write() as session:
        session.add(rows.host("gpu1"))
    with database.read() as reader:
        before = reader.scalars(select(HostRow.name)).all()
        with database.write() as writer:
            writer.add(rows.host("gpu2"))
        assert reader.scalars(select(HostRow.name)).all() == before == ["gpu1"]
    with database.read() as reader:
        assert len(reader.scalars(select(HostRow.name)).all()) == 2


def test_a_writer_sees_what_others_commit_meanwhile(database: Database):
    if database.one_writer:
        pytest.skip("writers come one after the other there")
    with database.write() as session:
        session.add(rows.host("gpu1"))
    with database.writing() as first:
        assert first.scalars(select(HostRow.name)).all() == ["gpu1"]
        with database.writing() as second:
            second.execute(update(HostRow).values(disabled=True))
        assert first.scalars(select(HostRow.disabled)).all() == [True]


def test_threads_open_no_more_connections_than_the_pool_keeps(
    server: Server, database_url: str, monkeypatch: pytest.MonkeyPatch
):
    if database_url.startswith("sqlite"):
        pytest.skip("its connections are those of its threads")
    monkeypatch.setattr(pooling, "PATIENCE", 3600)  # on a busy machine a short read is a long one
    migration.upgrade(database_url)
    database = Database.open(database_url, max_pool_size=2, max_overflow=50)
    opened = list[object]()
    event.listen(database.engine, "connect", lambda *_: opened.append(_))

    def read_often(_: int) -> None:
        for _ in range(20):
            with database.reading() as connection:
                connection.execute(select(HostRow.name)).all()

    at_once(read_often)
    database.close()

    assert len(opened) <= 2


def test_a_transaction_does_not_wait_for_long_ones(server: Server, database_url: str):
    if database_url.startswith("sqlite"):
        pytest.skip("its connections are those of its threads")
    migration.upgrade(database_url)
    database = Database.open(database_url, max_pool_size=1, max_overflow=1)
    with database.writing() as long, ThreadPoolExecutor(1) as threads:
        long.execute(insert(HostRow), [{"name": "gpu1"}])

        def read() -> list[str]:
            with database.reading() as connection:
                return list(connection.scalars(select(HostRow.name)))

        assert threads.submit(read).result(timeout=PATIENCE) == []
    database.close()


def test_a_transaction_that_failed_leaves_nothing_to_the_next_one_of_its_connection(
    database_url: str,
):
    migration.upgrade(database_url)
    database = Database.open(database_url, max_pool_size=1, max_overflow=0)
    try:
        for block in (
            database.writing,
            database.reading,
            partial(database.reading, snapshot=False),
        ):
            with pytest.raises(RuntimeError), block() as connection:
                connection.execute(select(HostRow.name)).all()
                if block == database.writing:
                    connection.execute(insert(HostRow).values(name="gpu1"))
                raise RuntimeError
            with database.reading(snapshot=False) as connection:
                assert connection.scalars(select(HostRow.name)).all() == []
    finally:
        database.close()


def test_no_transaction_is_rolled_back_after_its_end(mariadb_server: Server):
    url = mariadb_server.create("ended_once")
    migration.upgrade(url)
    database = Database.open(url)

    def rollbacks() -> int:
        with database.engine.connect() as connection:
            status = connection.exec_driver_sql("SHOW GLOBAL STATUS LIKE 'Com_rollback'").one()
        return int(status[1])

    try:
        before = rollbacks()
        own = rollbacks() - before  # that of asking
        for block in (
            database.writing,
            database.reading,
            partial(database.reading, snapshot=False),
        ):
            with block() as connection:
                connection.execute(select(HostRow.name)).all()
        assert rollbacks() - before == 2 * own
    finally:
        database.close()


def test_of_many_equal_transitions_at_once_one_happens(database: Database):
    with database.write() as session:
        session.add(rows.lease())

    def boot(number: int) -> bool:
        try:
            with database.write() as session:
                leases.transition(session.connection(), "lease-1", Event.BOOT, f"by {number}")
        except exceptions.IllegalTransition:
            return False
        return True

    assert sum(at_once(boot)) == 1
    with database.read() as session:
        assert [event.event for event in leases.events(session.connection(), "lease-1")] == ["boot"]


def test_many_first_words_from_one_host_make_one_host(database: Database):
    def speak(number: int) -> None:
        with database.write() as session:
            if number % 2:
                gpus.register(session, "new", "192.0.2.1", [])
            else:
                hosts.ensure(session, "new")

    at_once(speak)
    with database.read() as session:
        assert [host.name for host in hosts.page(session, limit=10)] == ["new"]


def test_many_hosts_may_report_at_once(database: Database):
    @retried
    def speak(number: int, count: int) -> None:
        infos = [gpus.GpuInfo(f"GPU-{number}-{i}", i, "A100", 40960, 8308) for i in range(4)]
        with database.write() as session:
            gpus.register(session, f"gpu{number}", "192.0.2.1", infos[:count])
            endpoints.register(session, f"gpu{number}", {"count": count})

    at_once(lambda number: [speak(number, count) for count in (4, 2, 4)])
    with database.read() as session:
        totals = gpus.totals(session)
    assert (totals["hosts"], totals["gpus"]) == (MANY, 4 * MANY)


def test_a_report_and_claims_at_the_same_time_lose_nothing(database: Database):
    """A monitor says that its GPUs have changed while each of them is being claimed."""
    infos = [gpus.GpuInfo(f"GPU-{i}", i, "A100", 40960, 8308) for i in range(MANY)]
    with database.write() as session:
        gpus.register(session, "gpu1", "192.0.2.1", infos)

    @retried
    def act(number: int) -> None:
        with database.write() as session:
            if number == 0:
                moved = [gpus.GpuInfo(i.uuid, i.device_index, "A100", 40960, 9000) for i in infos]
                gpus.register(session, "gpu1", "192.0.2.1", moved)
                return
            for info in infos:
                claimed = update(GpuRow).where(GpuRow.uuid == info.uuid)
                session.execute(claimed.values(used_mb=GpuRow.used_mb + 1024))

    at_once(act)
    with database.read() as session:
        found = {(gpu.used_mb, gpu.daemon_port) for gpu in gpus.page(session, limit=100)}
    assert found == {((MANY - 1) * 1024, 9000)}
