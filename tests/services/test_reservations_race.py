# SPDX-License-Identifier: Apache-2.0
"""Reservations on real database servers: made, kept, used, moved and given back at once by several clients.

One of the servers is a Galera cluster, with clients at both nodes.
"""

from __future__ import annotations

import datetime
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress

import pytest
from sqlalchemy import event, select

from gsaas import exceptions
from gsaas.db import gpus, migration, models, projects
from gsaas.db import reservations as rows
from gsaas.db.database import Database, retried
from gsaas.gpgpums.claims import Claims
from gsaas.limits.base import NO_LIMITS, Amounts
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.request import Request
from gsaas.objects.reservation import Reservation, ReservationStatus
from tests.support.databases import Server
from tests.support.galera import cluster
from tests.support.scheduling import database_of, open_claims
from tests.support.waiting import until

pytestmark = pytest.mark.services

CLIENTS = 6
ROUNDS = 4
SHARE = Request(1, "shared", 1000)
HOUR = datetime.timedelta(hours=1)
serial = itertools.count(1)


@pytest.fixture(scope="module")
def galera() -> Iterator[Sequence[Server]]:
    with cluster() as nodes:
        yield nodes


@pytest.fixture(params=["sqlite", "mariadb", "postgresql", "galera"])
def urls(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """An empty database as each of its servers has it: of a cluster, both nodes."""
    if request.param == "galera":
        servers = request.getfixturevalue("galera")
    else:
        servers = [request.getfixturevalue(f"{request.param}_server")]
    name = servers[0].unused_name()
    servers[0].create(name)
    yield [server.url(name) for server in servers]
    servers[0].drop(name)


@pytest.fixture
def cloud(urls: list[str]) -> Iterator[Callable[[], Claims]]:
    """Makes clients, each with a connection pool and a copy of the GPUs of its own; there are two GPUs of 4000 MiB.

    Of a cluster, they use the nodes in turn.
    """
    migration.upgrade(urls[0])
    opened: list[Database] = []

    def client() -> Claims:
        opened.append(Database.open(urls[len(opened) % len(urls)]))
        return open_claims(opened[-1], attempts=50)

    made = [client() for _ in urls]
    for database in opened:
        until(lambda database=database: migration.version(database) == migration.head())
    infos = [gpus.GpuInfo(f"GPU-{n}", n, "model", 4000, 8308) for n in range(2)]
    with opened[0].write() as session:
        gpus.register(session, "a", "192.0.2.1", infos)
    agree(made)
    yield client
    for database in opened:
        database.close()


def reserve(
    claims: Claims, request: Request, begins: float = 0, quota: Amounts = NO_LIMITS
) -> str | None:
    """Return the id of a new reservation; None if it does not fit."""
    now = database_of(claims).now()
    wanted = Reservation(
        *(f"r-{next(serial)}", "p", "u", "n", ReservationStatus.PENDING, request.to_dict()),
        *(now + begins * HOUR, now + (begins + 1) * HOUR, now),
    )
    try:
        return claims.reservations.create(wanted, request, quota=quota).id
    except exceptions.NoCapacity:
        return None


def claim(
    claims: Claims,
    request: Request,
    reservation_id: str | None = None,
    quota: Amounts = NO_LIMITS,
) -> str | None:
    """Return the id of a new lease; None if there is no room for it."""
    lease = Lease(
        status=Status.QUEUED,
        id=f"lease-{next(serial)}",
        project_id="p",
        user_id="u",
        name="n",
        remoting="rcuda",
        reservation_id=reservation_id,
        **request.to_dict(),
    )
    try:
        return claims.claim(lease, request, quota=quota).id
    except (exceptions.NoCapacity, exceptions.NeverFits):
        return None


def agree(clients: list[Claims]) -> None:
    """Return once each client's node of a cluster has what was committed at any other; at once on a single server."""
    for one in clients:
        database = database_of(one)
        if database.engine.dialect.name == "mysql":
            with database.engine.connect() as connection:
                connection.exec_driver_sql("SET SESSION wsrep_sync_wait = 1")
                connection.exec_driver_sql("SELECT 1 FROM gpus LIMIT 1")
                connection.exec_driver_sql("SET SESSION wsrep_sync_wait = 0")


def memory(claims: Claims) -> list[tuple[int, int]]:
    with database_of(claims).read() as session:
        found = session.scalars(select(models.GpuRow).order_by(models.GpuRow.uuid))
        return [(gpu.used_mb, gpu.reserved_mb) for gpu in found]


@contextmanager
def at_once() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(CLIENTS) as pool:
        yield pool


def test_of_many_that_reserve_the_same_time_at_once_as_many_succeed_as_fit(cloud):
    clients = [cloud() for _ in range(CLIENTS)]
    with at_once() as pool:
        made = list(pool.map(lambda one: reserve(one, Request(1), 5), clients))
    assert sum(one is not None for one in made) == 2


def test_what_is_kept_and_what_is_claimed_at_once_never_exceed_a_gpu(cloud):
    clients = [cloud() for _ in range(CLIENTS)]
    reservation_id = reserve(clients[0], SHARE.with_(count=6))

    def work(number: int) -> list[str | None]:
        if number % 2:
            for _ in range(5):
                clients[number].reservations.audit()
            return []
        return [claim(clients[number], SHARE) for _ in range(4)]

    with at_once() as pool:
        claimed = [one for each in pool.map(work, range(CLIENTS)) for one in each if one]
    for _ in range(2):
        agree(clients)
        clients[0].reservations.audit()
    with database_of(clients[0]).reading() as connection:
        kept = sum(share.kept for share in rows.get(connection, reservation_id).shares)
    books = memory(clients[0])
    assert all(used + reserved <= 4000 for used, reserved in books)
    assert sum(reserved for _, reserved in books) == 1000 * kept
    assert sum(used for used, _ in books) == 1000 * len(claimed)


def test_claims_and_reservations_at_once_are_within_one_quota(cloud):
    clients = [cloud() for _ in range(CLIENTS)]
    quota = {"cgpus": 3, "gpu_memory_mb": -1, "leases": -1}

    def work(number: int) -> Counter[str]:
        outcome = Counter[str]()
        for turn in range(ROUNDS):
            makes = reserve if (number + turn) % 2 else claim
            with suppress(exceptions.QuotaExceeded):
                outcome[makes.__name__] += makes(clients[number], SHARE, quota=quota) is not None
        return outcome

    with at_once() as pool:
        made = sum(pool.map(work, range(CLIENTS)), Counter[str]())
    agree(clients)
    with database_of(clients[0]).reading() as connection:
        assert projects.usage(connection, "p")["cgpus"] == made.total() == 3


def disable(claims: Claims, uuid: str, disabled: bool = True) -> None:
    @retried
    def write() -> None:
        with database_of(claims).write() as session:
            gpus.set_disabled(session, uuid, disabled)

    write()


def live(claims: Claims) -> list[Reservation]:
    with database_of(claims).reading() as connection:
        return rows.live(connection)


@pytest.mark.parametrize("begins", [0, 5], ids=["kept", "for later"])
def test_what_moves_while_others_are_reserved_never_exceeds_a_gpu(cloud, begins):
    clients = [cloud() for _ in range(CLIENTS)]
    for turn in range(ROUNDS):
        assert reserve(clients[0], SHARE.with_(count=2), begins)
        assert reserve(clients[0], SHARE.with_(count=2), begins)
        clients[0].reservations.audit()
        agree(clients)
        disable(clients[0], "GPU-0")
        agree(clients)

        def work(number: int) -> None:
            if number % 2:
                clients[number].reservations.audit()
            else:
                reserve(clients[number], SHARE, begins)

        with at_once() as pool:
            list(pool.map(work, range(CLIENTS)))
        agree(clients)
        clients[0].reservations.audit()
        agree(clients)
        found = live(clients[0])
        at_once_on = Counter(share.gpu_uuid for one in found for share in one.shares)
        assert at_once_on["GPU-1"] == 4, (turn, at_once_on)
        kept = Counter(s.gpu_uuid for one in found for s in one.shares if s.kept)
        assert [reserved for _, reserved in memory(clients[0])] == [
            1000 * kept[f"GPU-{number}"] for number in range(2)
        ]
        for one in found:
            clients[turn % 2].reservations.cancel(one.id)
            agree(clients)
        assert memory(clients[0]) == [(0, 0), (0, 0)]
        disable(clients[0], "GPU-0", False)
        agree(clients)


def test_what_moves_while_leases_claim_and_launch_in_it_never_exceeds_a_gpu(cloud):
    clients = [cloud() for _ in range(CLIENTS)]
    reservation_id = reserve(clients[0], SHARE.with_(count=3))
    clients[0].reservations.audit()
    agree(clients)
    disable(clients[0], live(clients[0])[0].shares[0].gpu_uuid)
    agree(clients)

    def work(number: int) -> list[str | None]:
        if number % 3 == 0:
            for _ in range(5):
                clients[number].reservations.audit()
            return []
        within = reservation_id if number % 3 == 1 else None
        return [claim(clients[number], SHARE, within) for _ in range(3)]

    with at_once() as pool:
        claimed = [one for each in pool.map(work, range(CLIENTS)) for one in each if one]
    agree(clients)
    clients[0].reservations.audit()
    agree(clients)
    books = memory(clients[0])
    [found] = live(clients[0])
    kept = sum(share.kept and share.lease_id is None for share in found.shares)
    assert all(used + reserved <= 4000 for used, reserved in books)
    assert sum(used for used, _ in books) == 1000 * len(claimed)
    assert sum(reserved for _, reserved in books) == 1000 * kept


def test_of_many_launches_in_one_reservation_as_many_succeed_as_it_has_cgpus(cloud):
    clients = [cloud() for _ in range(CLIENTS)]
    reservation_id = reserve(clients[0], SHARE.with_(count=4))
    clients[0].reservations.audit()
    agree(clients)
    with at_once() as pool:
        launched = [
            lease_id
            for lease_id in pool.map(lambda one: claim(one, SHARE, reservation_id), clients)
            if lease_id
        ]
        assert len(launched) == 4
        agree(clients)
        list(pool.map(lambda pair: pair[0].release(pair[1]), zip(clients, launched, strict=False)))
    agree(clients)
    assert sum(reserved for _, reserved in memory(clients[0])) == 4000
    assert sum(used for used, _ in memory(clients[0])) == 0
    clients[1].reservations.cancel(reservation_id)
    agree(clients)
    assert memory(clients[0]) == [(0, 0), (0, 0)]


@pytest.mark.parametrize("urls", ["mariadb", "postgresql", "galera"], indirect=True)
def test_what_a_lease_returns_while_its_reservation_is_cancelled_is_kept_by_nobody(cloud):
    ending, returning = cloud(), cloud()
    reservation_id = reserve(ending, Request(1))
    ending.reservations.audit()
    lease_id = claim(ending, Request(1), reservation_id)
    with at_once() as pool:
        release: list[Future[None]] = []

        @event.listens_for(database_of(ending).engine, "before_cursor_execute")
        def begin_release(_connection, _cursor, statement, *_) -> None:
            if statement.startswith("UPDATE reserved_shares") and not release:
                release.append(pool.submit(returning.release, lease_id))
                wait(release, timeout=1)  # it waits for the cancellation, unless it comes between

        ending.reservations.cancel(reservation_id)
        release[0].result()
    agree([ending, returning])
    assert memory(ending) == [(0, 0), (0, 0)]
