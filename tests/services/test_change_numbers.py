# SPDX-License-Identifier: Apache-2.0
"""A copy of the GPUs misses no change, in whichever order transactions commit, and reads nothing else."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pymysql
import pytest
from oslo_db.exception import DBDeadlock, DBError
from oslo_utils import timeutils
from sqlalchemy import Connection, event, func, select, update

from gsaas import exceptions
from gsaas.db import endpoints, gpu_writers, gpus, hosts, leases, models
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims
from gsaas.metrics import counted
from gsaas.objects.change_numbers import PER_WRITER, writer_of
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.placement import Refusal
from gsaas.objects.request import Request
from tests.support import scheduling
from tests.support.scheduling import Mirror, open_mirror

pytestmark = pytest.mark.services

GPUS = models.GpuRow.__table__
PART = Request(1, "shared", 100)
SERVERS_WHERE_TRANSACTIONS_OVERLAP = pytest.mark.parametrize(
    "server", ["mariadb", "postgresql"], indirect=True
)


@pytest.fixture
def cloud(database: Database) -> Database:
    """Two hosts with four GPUs each."""
    report(database, "a", 4)
    report(database, "b", 4)
    return database


def report(database: Database, host: str, number: int) -> None:
    infos = [gpus.GpuInfo(f"{host}{index}", index, "model", 1000, 8308) for index in range(number)]
    with database.write() as session:
        gpus.register(session, host, "192.0.2.1", infos)


def open_claims(database: Database, subset_size: int = 1, attempts: int = 5) -> Claims:
    return scheduling.open_claims(
        database, attempts=attempts, heartbeat_timeout=35, subset_size=subset_size
    )


def new_lease(lease_id: str, request: Request = PART) -> Lease:
    return Lease(
        status=Status.QUEUED,
        id=lease_id,
        project_id="project-1",
        user_id="user-1",
        name="training",
        remoting="rcuda",
        **request.to_dict(),
    )


def use(connection: Connection, uuid: str, used_mb: int) -> None:
    """Change a GPU as a claim does."""
    connection.execute(
        update(GPUS)
        .where(GPUS.c.uuid == uuid)
        .values(used_mb=used_mb, generation=GPUS.c.generation + 1)
    )


def number_of(connection: Connection, uuid: str) -> int:
    return connection.execute(select(GPUS.c.change_number).where(GPUS.c.uuid == uuid)).scalar_one()


class NaiveReader:
    """Remembers the largest number, and reads what is above it."""

    def __init__(self, database: Database) -> None:
        self.used: dict[str, int] = {}
        self.newest = -1
        self.refresh(database)

    def refresh(self, database: Database) -> None:
        query = select(GPUS.c.uuid, GPUS.c.used_mb, GPUS.c.change_number)
        with database.reading() as connection:
            for uuid, used_mb, number in connection.execute(
                query.where(GPUS.c.change_number > self.newest)
            ).all():
                self.used[uuid] = used_mb
                self.newest = max(self.newest, number)


@contextmanager
def new_writers_get(database: Database, offset: int) -> Iterator[None]:
    """Let connections to MariaDB number rows as node *offset* of two does in a Galera cluster."""

    def begin(connection: Connection) -> None:
        if connection.dialect.name == "mysql":
            connection.exec_driver_sql(
                f"SET SESSION auto_increment_increment = 2, auto_increment_offset = {offset}"
            )

    event.listen(database.engine, "begin", begin)
    yield
    event.remove(database.engine, "begin", begin)


@SERVERS_WHERE_TRANSACTIONS_OVERLAP
@pytest.mark.parametrize("offsets", [(1, 2), (2, 1)])
def test_a_change_that_is_committed_late_is_found_whatever_its_number_is(cloud, offsets):
    """A reader that remembers the largest number loses one of the two, here or with the other offsets."""
    cache, naive = open_mirror(cloud), NaiveReader(cloud)
    numbers = {}
    with new_writers_get(cloud, offsets[0]), cloud.writing() as early:
        use(early, "a0", 100)  # begins first, is committed last
        numbers["early"] = number_of(early, "a0")
        with new_writers_get(cloud, offsets[1]), cloud.writing() as late:
            use(late, "a1", 200)
            numbers["late"] = number_of(late, "a1")
        with cloud.reading() as connection:
            cache.refresh(connection)
        naive.refresh(cloud)
        assert (cache.pool["a0"].used_mb, cache.pool["a1"].used_mb) == (0, 200)
    with cloud.reading() as connection:
        cache.refresh(connection)
    naive.refresh(cloud)

    assert (cache.pool["a0"].used_mb, cache.pool["a1"].used_mb) == (100, 200)
    assert naive.used["a1"] == 200
    assert (naive.used["a0"] == 100) == (numbers["early"] > numbers["late"])


@SERVERS_WHERE_TRANSACTIONS_OVERLAP
def test_a_reader_that_remembers_one_number_loses_changes(cloud):
    """This is why there are writers: the test of the naive construction."""
    naive = NaiveReader(cloud)
    with cloud.writing() as early:
        use(early, "a0", 100)
        with cloud.writing() as late:
            use(late, "a1", 200)
            assert number_of(late, "a1") > number_of(early, "a0")
        naive.refresh(cloud)
    naive.refresh(cloud)

    assert naive.used["a0"] == 0


@SERVERS_WHERE_TRANSACTIONS_OVERLAP
def test_statements_of_one_transaction_see_different_moments_and_nothing_is_lost(cloud):
    """Claims read under READ COMMITTED."""
    cache = open_mirror(cloud)
    with cloud.writing() as connection:
        cache.refresh(connection)
        for uuid, used_mb in (("a0", 100), ("b3", 300), ("a0", 200)):
            with cloud.writing() as other:
                use(other, uuid, used_mb)
            cache.refresh(connection)
            assert cache.pool[uuid].used_mb == used_mb


def test_what_many_writers_change_at_once_is_all_found(cloud):
    """Readers look all the time; what they know at the end is what the database has."""
    caches = [open_mirror(cloud) for _ in range(2)]
    done = threading.Event()

    def change(number: int) -> None:
        for turn in range(20):
            with cloud.writing() as connection:
                use(connection, "ab"[turn % 2] + str(number), turn)

    def follow(cache: Mirror) -> None:
        while not done.is_set():
            with cloud.reading() as connection:
                cache.refresh(connection)

    with ThreadPoolExecutor(6) as threads:
        readers = [threads.submit(follow, cache) for cache in caches]
        list(threads.map(change, range(4)))
        done.set()
        for reader in readers:
            reader.result()
    fresh = open_mirror(cloud)
    for cache in caches:
        with cloud.reading() as connection:
            cache.refresh(connection)
        assert {gpu.uuid: gpu for gpu in cache.pool} == {gpu.uuid: gpu for gpu in fresh.pool}


def test_a_transaction_that_is_rolled_back_leaves_its_number_to_the_next(cloud):
    with cloud.writing() as connection:
        use(connection, "a0", 1)
        first = number_of(connection, "a0")
    with pytest.raises(ZeroDivisionError), cloud.writing() as connection:
        use(connection, "a0", 2)
        raise ZeroDivisionError
    with cloud.writing() as connection:
        use(connection, "a0", 3)
        assert number_of(connection, "a0") == first + 1


@SERVERS_WHERE_TRANSACTIONS_OVERLAP
def test_a_writer_whose_commit_was_not_answered_is_not_used_again(cloud, monkeypatch):
    with cloud.writing() as connection:
        use(connection, "a0", 1)
        first = number_of(connection, "a0")
    commit = cloud.engine.dialect.do_commit

    def lose(dbapi_connection: object) -> None:
        commit(dbapi_connection)
        raise ConnectionError("the answer got lost")

    def write() -> None:
        with cloud.writing() as connection:
            use(connection, "a0", 2)
            monkeypatch.setattr(cloud.engine.dialect, "do_commit", lose)

    with pytest.raises(DBError):
        write()
    monkeypatch.undo()
    with cloud.writing() as connection:
        use(connection, "a0", 3)
        assert writer_of(number_of(connection, "a0")) != writer_of(first)


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_a_writer_whose_commit_was_refused_is_used_again(cloud, monkeypatch):
    """As by a Galera cluster, whenever another node has changed the same row."""
    with cloud.writing() as connection:
        use(connection, "a0", 1)
        first = number_of(connection, "a0")

    def refuse(dbapi_connection: pymysql.Connection) -> None:
        dbapi_connection.rollback()
        raise pymysql.OperationalError(1213, "Deadlock found when trying to get lock")

    def write() -> None:
        with cloud.writing() as connection:
            use(connection, "a0", 2)
            monkeypatch.setattr(cloud.engine.dialect, "do_commit", refuse)

    with pytest.raises(DBDeadlock):
        write()
    monkeypatch.undo()
    with cloud.writing() as connection:
        use(connection, "a0", 3)
        assert number_of(connection, "a0") == first + 1


@SERVERS_WHERE_TRANSACTIONS_OVERLAP
def test_a_process_that_outlives_many_writers_forgets_those_without_rows(cloud):
    claims, parameters = open_claims(cloud), []

    @event.listens_for(cloud.engine, "before_cursor_execute")
    def count(connection, cursor, statement, values, context, executemany):
        parameters.append(len(values))

    for number in range(300):
        with cloud.engine.begin() as connection:  # not by `writing`: a writer of its own
            use(connection, "a0", number)
        claims.check(PART)
    assert max(parameters) < 300


@pytest.mark.parametrize("column", ["used_mb", "reserved_mb"])
def test_a_gpu_with_a_known_generation_and_other_claims_is_not_claimed(cloud, column):
    """A database that lost its last commits gives the same generation twice."""
    claims = open_claims(cloud)
    claims.check(PART)
    with cloud.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE gpus SET {column} = 900 WHERE uuid = 'a0'")
    claimed = claims.claim(new_lease("next", Request(1, "shared", 800)), Request(1, "shared", 800))
    assert claimed.claims[0].gpu_uuid != "a0"


def rows_read(cache: Mirror, database: Database, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the GPUs that a refresh reads."""
    read: list[str] = []
    put = Mirror.put

    def note(mirror: Mirror, found: list[Gpu]) -> None:
        read.extend(gpu.uuid for gpu in found)
        put(mirror, found)

    monkeypatch.setattr(Mirror, "put", note)
    with database.reading() as connection:
        cache.refresh(connection)
    monkeypatch.undo()
    return sorted(read)


def test_a_process_that_missed_changes_reads_these_and_no_other(cloud, monkeypatch):
    cache = open_mirror(cloud)
    other = open_claims(cloud)
    for number in range(3):
        other.claim(new_lease(f"lease-{number}"), PART, "first-fit")  # all on a0
    with cloud.write() as session:
        gpus.set_disabled(session, "b2", True)

    assert rows_read(cache, cloud, monkeypatch) == ["a0", "b2"]
    assert rows_read(cache, cloud, monkeypatch) == []


def attempts_and_full_reads() -> tuple[float, ...]:
    names = ("gsaas_claim_attempts_total", "gsaas_pool_full_reads_total")
    return tuple(counted.REGISTRY.get_sample_value(name) or 0.0 for name in names)


@SERVERS_WHERE_TRANSACTIONS_OVERLAP
def test_a_claim_on_a_stale_view_takes_the_next_gpu_without_reading_again(cloud, monkeypatch):
    """Of two processes that both choose a0, one is faster while the other one chooses."""
    mine, other = open_claims(cloud), open_claims(cloud)
    mine.check(PART)
    other.check(PART)
    refresh, refreshes = Mirror.refresh, []

    def overtaken(cache: Mirror, connection: Connection) -> None:
        refresh(cache, connection)
        refreshes.append(cache)
        if len(refreshes) == 1:
            other.claim(new_lease("quick", Request(1)), Request(1))

    monkeypatch.setattr(Mirror, "refresh", overtaken)
    before = attempts_and_full_reads()
    lease = mine.claim(new_lease("slow"), PART)

    assert lease.claims[0].gpu_uuid == "a1"
    assert len(refreshes) == 2  # one for each of the two claims
    made, read = (now - then for now, then in zip(attempts_and_full_reads(), before, strict=True))
    assert (made, read) == (2, 0)  # one for each


@SERVERS_WHERE_TRANSACTIONS_OVERLAP
def test_a_claim_that_finds_no_other_gpu_without_reading_reads_before_it_is_refused(
    cloud, monkeypatch
):
    with cloud.write() as session:
        for uuid in ("a1", "a2", "a3"):
            gpus.set_disabled(session, uuid, True)
        hosts.set_disabled(session, "b", True)
    mine, other = open_claims(cloud), open_claims(cloud)
    mine.check(PART)
    other.check(PART)
    refresh, refreshes = Mirror.refresh, []

    def overtaken(cache: Mirror, connection: Connection) -> None:
        refresh(cache, connection)
        refreshes.append(cache)
        if len(refreshes) == 1:
            other.claim(new_lease("quick", Request(1)), Request(1))

    monkeypatch.setattr(Mirror, "refresh", overtaken)
    with pytest.raises(exceptions.NoCapacity):
        mine.claim(new_lease("slow"), PART)
    assert len(refreshes) == 3


def test_claims_and_releases_of_two_processes_read_everything_once_each(cloud):
    before = attempts_and_full_reads()
    processes = [open_claims(cloud, subset_size=8) for _ in range(2)]
    for turn in range(10):
        for number, claims in enumerate(processes):
            claims.release(claims.claim(new_lease(f"{turn}-{number}"), PART).id)

    made, read = (now - then for now, then in zip(attempts_and_full_reads(), before, strict=True))
    assert (made, read) == (20, 2)


def chosen(claims: Claims) -> str:
    """Return the GPU that a claim would get."""
    [share] = claims.check(Request(1)).shares
    return share.gpu_uuid


def test_processes_begin_at_different_ones_of_equal_gpus_where_transactions_overlap(cloud):
    begun = {chosen(open_claims(cloud, subset_size=8)) for _ in range(20)}
    assert (len(begun) > 1) == (not cloud.one_writer)
    assert {chosen(open_claims(cloud, subset_size=2)) for _ in range(10)} <= {"a0", "a1"}


def test_a_process_claims_equal_gpus_one_after_the_other_and_begins_at_the_same_one_again(cloud):
    claims = open_claims(cloud, subset_size=8)
    in_order = [f"{host}{index}" for host in "ab" for index in range(4)]
    first = in_order.index(chosen(claims))
    for turn in range(2):
        claimed = [
            claims.claim(new_lease(f"{turn}-{number}", Request(1)), Request(1)).claims[0].gpu_uuid
            for number in range(8)
        ]
        assert claimed == in_order[first:] + in_order[:first]
        for number in reversed(range(8)):
            claims.release(f"{turn}-{number}")


@SERVERS_WHERE_TRANSACTIONS_OVERLAP
def test_a_process_whose_gpu_another_takes_first_begins_elsewhere(cloud, monkeypatch):
    mine = open_claims(cloud, subset_size=8)
    refresh, begun = Mirror.refresh, [chosen(mine)]
    overtake = []

    def overtaken(cache: Mirror, connection: Connection) -> None:
        refresh(cache, connection)
        while overtake:
            with cloud.writing() as other:
                use(other, overtake.pop(), 1000)

    monkeypatch.setattr(Mirror, "refresh", overtaken)
    for number in range(20):
        overtake.append(begun[-1])
        claimed = mine.claim(new_lease(f"lease-{number}", Request(1)), Request(1))
        assert claimed.claims[0].gpu_uuid != begun[-1]
        mine.release(claimed.id)
        with cloud.writing() as connection:
            use(connection, begun[-1], 0)
        begun.append(chosen(mine))
        assert chosen(mine) == begun[-1]
    # Where it began before is free again each time.
    assert len({*begun}) > 2


@SERVERS_WHERE_TRANSACTIONS_OVERLAP
def test_a_process_whose_claim_is_not_committed_begins_elsewhere(cloud, monkeypatch):
    """As in a Galera cluster, where another node has changed the GPU first: nothing says which it was."""
    claims = open_claims(cloud, subset_size=8, attempts=1)
    begun = [chosen(claims)]
    insert_claims = leases.insert_claims

    def refuse(*_: object) -> None:
        raise DBDeadlock

    for _ in range(20):
        monkeypatch.setattr(leases, "insert_claims", refuse)
        with pytest.raises(exceptions.ClaimConflict):
            claims.claim(new_lease("refused", Request(1)), Request(1))
        monkeypatch.setattr(leases, "insert_claims", insert_claims)
        begun.append(chosen(claims))
        assert chosen(claims) == begun[-1]
    assert len({*begun}) > 2


def test_gpus_that_are_deleted_are_noticed_and_so_are_hosts_and_endpoints(cloud):
    claims = open_claims(cloud)
    assert claims.check(Request(8)).memory_by_gpu().keys() == {
        f"{host}{index}" for host in "ab" for index in range(4)
    }
    report(cloud, "a", 3)
    assert claims.check(Request(8)).impossible
    with cloud.write() as session:
        hosts.set_disabled(session, "a", True)
    assert claims.check(Request(1)).memory_by_gpu().keys() == {"b0"}
    assert claims.check(Request(1, locality="local")).impossible
    with cloud.write() as session:
        endpoints.register(session, "b", {})
    assert claims.check(Request(1, locality="local")).host == "b"
    with cloud.write() as session:
        hosts.forget(session, "b", timeout=None, servers_stay=True)
    assert claims.check(Request(1)).reason


def test_rows_of_former_writers_get_new_numbers_and_claims_go_on(cloud):
    claims = open_claims(cloud)
    kept = claims.claim(new_lease("kept"), PART)
    with cloud.writing() as connection:
        connection.execute(
            update(models.GpuWriterRow).values(
                created_at=timeutils.utcnow() - datetime.timedelta(days=1)
            )
        )
        connection.execute(
            update(GPUS).where(GPUS.c.uuid.in_(["b0", "b1"])).values(change_number=0)
        )

    for _ in range(2):
        gpu_writers.tidy(cloud)

    with cloud.reading() as connection:
        numbers = dict(map(tuple, connection.execute(select(GPUS.c.uuid, GPUS.c.change_number))))
        writers = connection.scalar(select(func.count()).select_from(models.GpuWriterRow))
        assert gpu_writers.former(connection) == []
    assert min(numbers.values()) >= PER_WRITER
    assert len(set(map(writer_of, numbers.values()))) == 1
    assert writers is not None
    assert writers <= 1
    assert claims.claim(new_lease("next"), PART, "first-fit").claims[0].gpu_uuid == "a0"
    claims.release(kept.id)
    assert open_claims(cloud).check(Request(8)) == claims.check(Request(8))


def test_rows_that_were_changed_by_hand_are_found_before_a_request_is_refused(cloud, monkeypatch):
    """Or by the restoration of a backup: no number tells of it."""
    with cloud.write() as session:
        for uuid in [f"{host}{index}" for host in "ab" for index in range(4)]:
            gpus.set_disabled(session, uuid, True)
    claims = open_claims(cloud)
    assert isinstance(claims.check(PART), Refusal)
    with cloud.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE gpus SET disabled = (1 = 0) WHERE uuid = 'b2'")
    assert isinstance(claims.check(PART), Refusal)

    answers = iter([False])
    monkeypatch.setattr(Mirror, "may_refuse", property(lambda _: next(answers, True)))
    assert claims.check(PART).memory_by_gpu().keys() == {"b2"}


def test_a_host_that_is_heard_again_is_offered_at_once_though_another_falls_silent(cloud):
    claims = open_claims(cloud)
    silence(cloud, "b")
    assert isinstance(claims.check(Request(5)), Refusal)
    silence(cloud, "a")
    report(cloud, "b", 4)

    placed = claims.check(Request(4))

    assert {share.gpu_uuid[0] for share in placed.shares} == {"b"}


def silence(database: Database, host: str) -> None:
    with database.write() as session:
        session.get_one(models.HostRow, host).monitor_seen_at -= datetime.timedelta(seconds=36)
