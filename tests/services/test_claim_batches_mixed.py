# SPDX-License-Identifier: Apache-2.0
"""Threads of several clients claim and return what differs in everything, at once, on real database servers.

A client is what a process has: connections, a copy of the GPUs, and batches of claims and of returns. Nobody waits for
GPUs, so they stay scarce, and clients take them from each other. In between, everybody stops, and what the database and
the clients say is compared. One that looks at the database all the time does not stop.

What a thread asks for follows from the seed; who is faster does not.
"""

from __future__ import annotations

import datetime
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from oslo_db import exception as db_exception
from sqlalchemy import Connection, func, select

from gsaas import exceptions
from gsaas.db import claims as claim_rows
from gsaas.db import endpoints, gpus, leases, models, projects, request_keys
from gsaas.db.database import Database
from gsaas.gpgpums import policies
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.rules import MaskedAddresses
from gsaas.limits import base as limits
from gsaas.objects.gpu import EXCLUSIVE
from gsaas.objects.lease import Lease
from gsaas.objects.ports import PortRange
from gsaas.objects.request import ANY, ONE, SPREAD, Request
from gsaas.objects.reservation import Reservation, ReservationStatus
from tests.services.test_claims_race import BOOKS, new_lease
from tests.support import scheduling
from tests.support.waiting import PATIENCE

pytestmark = [
    pytest.mark.services,
    pytest.mark.parametrize("server", ["mariadb", "postgresql"], indirect=True),
]

SEEDS = (1, pytest.param(2, marks=pytest.mark.thorough))
CLIENTS = 3
THREADS = 7
"""Of a client; one of them makes reservations."""
SPELLS = 4
"""After each of them everybody stops."""
TURNS = 10
"""Of a thread in a spell."""
HELD_AT_MOST = 3

HOSTS = ("a", "b", "c")
MEMORY = (1000, 1000, 2000)
"""MiB of the GPUs of each host."""
REQUESTS = (
    *(Request(1, "shared", size) for size in (50, 100, 100, 150, 200, 300, 300, 500, 700, 1000)),
    Request(2, "shared", 100),
    Request(3, "shared", 200),
    Request(4, "shared", 150, hosts=ONE),
    Request(2, "shared", 400, hosts=ONE),
    Request(3, "shared", 250, hosts=SPREAD),
    Request(2, "shared", 300, locality="remote"),
    Request(1, "shared", 200, locality="local"),
    Request(1, "shared", 200, host="b"),
    Request(1),
    Request(2, hosts=ONE),
    Request(2, hosts=SPREAD),
    Request(1, gpu_model="large"),
)
RESERVED = Request(3, "shared", 200)

QUOTAS: Mapping[str, limits.Amounts] = {
    "free": limits.NO_LIMITS,
    "few-leases": {**limits.NO_LIMITS, "leases": 4},
    "little": {"cgpus": 7, "gpu_memory_mb": 2500, "leases": 6},
}
"""By project; most requests are of the first one."""
PROJECTS = ("free", "free", "free", "few-leases", "little")

KEYS = 40
"""Different request keys, so that many requests have one that has made a lease, or is just making one."""
WITH_KEY = 0.2
"""The part of the requests that have a key."""

LOCAL_SHARE = 5
"""Masked addresses that a project may have on the host of its consumers."""
CONSUMERS: Sequence[Mapping[str, Any]] = (
    {},
    {},
    {"has_server": False},
    {"has_server": False, "remoting": "lupine"},
    {"has_server": False, "consumer_host": "compute"},
)
"""Fields of a lease that say what its consumer is."""

REFUSALS = (
    exceptions.NoCapacity,
    exceptions.QuotaExceeded,
    exceptions.NoDaemonPort,
    exceptions.LocalShareExceeded,
)
"""What may happen to a claim here, besides that its key has made a lease. Anything else, `ClaimConflict` for one, is an
error."""


@pytest.fixture
def gpus_of_batches(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the GPUs that batches have chosen, and those that they have lost."""
    counts = Counter[str]()
    lock_gpus = claim_rows.lock_gpus

    def count(connection: Connection, uuids: Any, *, waits: bool) -> Sequence[Any]:
        rows = lock_gpus(connection, uuids, waits=waits)
        if isinstance(uuids, Mapping) and not waits:
            same = sum(uuids[row.uuid].generation == row.generation for row in rows)
            counts["chosen"] += len(uuids)
            counts["lost"] += len(uuids) - same
        return rows

    monkeypatch.setattr(claim_rows, "lock_gpus", count)
    return counts


@pytest.fixture
def clients(database: Database) -> Iterator[list[Claims]]:
    """Clients of one database, each with connections of its own; there are nine GPUs."""
    with database.write() as session:
        for host in HOSTS:
            infos = [
                gpus.GpuInfo(f"GPU-{host}-{n}", n, "large" if mb > 1000 else "small", mb, 8308)
                for n, mb in enumerate(MEMORY)
            ]
            gpus.register(session, host, "192.0.2.1", infos)
            endpoints.register(session, host, {})
        endpoints.register(session, "compute", {})
    url = database.engine.url.render_as_string(hide_password=False)
    with ExitStack() as stack:
        opened = [Database.open(url, max_pool_size=THREADS) for _ in range(CLIENTS)]
        for one in opened:
            stack.callback(one.close)
        yield [open_claims(one) for one in opened]


def open_claims(database: Database) -> Claims:
    return scheduling.open_claims(
        database,
        attempts=50,
        # Few ports and addresses, so that claims of different GPUs want the same ones.
        daemon_ports={"rcuda": PortRange(20000, 20015)},
        local=MaskedAddresses("169.254.72.0/27", 8308),
        local_per_project=LOCAL_SHARE,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_claims_that_differ_in_everything_get_no_more_than_there_is(
    database, clients, gpus_of_batches, seed
):
    cloud = Cloud(database, clients, seed)

    outcome = cloud.run()

    assert cloud.wrong == [], f"seed {seed}"
    assert outcome.keys() >= {"claimed", "NoCapacity", "QuotaExceeded", "DBDuplicateEntry"}, (
        f"seed {seed}"
    )
    # Otherwise this has tried nothing.
    assert gpus_of_batches["chosen"] > gpus_of_batches["lost"] > 0, (
        f"seed {seed}: {gpus_of_batches}"
    )


class Cloud:
    """Has the threads of *clients* act in spells, and notes what is wrong."""

    def __init__(self, database: Database, clients: Sequence[Claims], seed: int) -> None:
        self.database = database
        self.clients = clients
        self.wrong: list[str] = []
        """What must not be, in the order in which it was found."""
        self._actors = [
            (Reserving if number == 0 else Claiming)(client, f"{place}-{number}", seed)
            for place, client in enumerate(clients)
            for number in range(THREADS)
        ]
        self._finished = threading.Event()

    def run(self) -> Counter[str]:
        """Let everybody act until all had their turns, and return the rest; count what happened."""
        with ThreadPoolExecutor(len(self._actors) + 1) as threads:
            watcher = threads.submit(self._watch)
            try:
                for spell in range(SPELLS):
                    self._together(threads, lambda actor: actor.act())
                    self._compare(f"after spell {spell}")
                self._together(threads, lambda actor: actor.end())
                self._compare("at the end")
            finally:
                self._finished.set()
                watcher.result(PATIENCE)
        self._note("at the end", self._left())
        return sum((actor.outcome for actor in self._actors), Counter[str]())

    def _together(self, threads: ThreadPoolExecutor, act: Callable[[Actor], None]) -> None:
        for actor, done in [(one, threads.submit(act, one)) for one in self._actors]:
            if error := done.exception(PATIENCE):
                self.wrong.append(f"{actor.name}: {error!r}")

    def _watch(self) -> None:
        while not self._finished.is_set():
            with self.database.reading() as connection:
                self._note("meanwhile", wrong_books(connection))

    def _compare(self, when: str) -> None:
        """Compare what the clients know with what is stored, while nobody changes anything."""
        with self.database.reading() as connection:
            self._note(when, wrong_books(connection))
            for actor in self._actors:
                for lease in actor.held:
                    found = [replace(one, claimed_gpu=None) for one in lease.claims]
                    stored = leases.get(connection, lease.id).claims
                    if [replace(one, claimed_gpu=None) for one in stored] != found:
                        self._note(when, [f"{actor.name} was told of {found}, stored is {stored}"])
        there = stored_gpus(self.database)
        for place, client in enumerate(self.clients):
            client.check(Request(1))
            known = shown_gpus(client)
            differing = {uuid: (known[uuid], there[uuid]) for uuid in there}
            self._note(
                when,
                (
                    f"client {place} knows {uuid} as {own}, stored is {real}"
                    for uuid, (own, real) in differing.items()
                    if own != real
                ),
            )

    def _left(self) -> list[str]:
        with self.database.reading() as connection:
            claims = connection.scalar(select(func.count()).select_from(models.ClaimRow))
            used = connection.scalar(select(func.sum(models.GpuRow.used_mb)))
            reserved = connection.scalar(select(func.sum(models.GpuRow.reserved_mb)))
        return [] if (claims, used, reserved) == (0, 0, 0) else [f"left: {claims, used, reserved}"]

    def _note(self, when: str, wrong: Any) -> None:
        self.wrong += [f"{when}: {one}" for one in wrong if len(self.wrong) < 20]


class Actor:
    """One thread of a client: it takes turns, and in the end returns what it has."""

    def __init__(self, claims: Claims, name: str, seed: int) -> None:
        self.name = name
        self.held: list[Lease] = []
        self.outcome = Counter[str]()
        self._claims = claims
        self._chance = random.Random(f"{seed}-{name}")  # noqa: S311 - the same course in every run
        self._turns = 0

    def act(self) -> None:
        """Take some turns."""
        for _ in range(TURNS):
            self._turns += 1
            self.turn()
            while len(self.held) > self._chance.randrange(HELD_AT_MOST + 1):
                self.give_back(self._chance.randrange(len(self.held)))

    def turn(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """Return everything."""
        while self.held:
            self.give_back(-1)

    def claim(self, request: Request, policy: str | None = None, **fields: Any) -> None:
        """Claim for a new lease, and hold what it gets."""
        size = request.with_(gpu_model=None, hosts=ANY, host=None)
        wanted = new_lease(f"{self.name}-{self._turns}", size)
        wanted = wanted.with_(requirements=request.requirements(), **fields)
        request = request.with_(consumer_host=wanted.consumer_host)
        try:
            lease = self._claims.claim(wanted, request, policy, QUOTAS[wanted.project_id])
        except REFUSALS as error:
            self.outcome[type(error).__name__] += 1
            return
        except db_exception.DBDuplicateEntry as error:
            self.outcome[type(error).__name__] += 1
            with scheduling.database_of(self._claims).reading() as connection:
                found = request_keys.find(connection, wanted.request_key or "")
            assert found is not None and found.lease_id != wanted.id
            return
        self.outcome["claimed"] += 1
        self.held.append(lease)
        assert (lease.id, lease.project_id) == (wanted.id, wanted.project_id)
        assert [(one.lease_id, one.position) for one in lease.claims] == [
            (wanted.id, position) for position in range(request.count)
        ]

    def give_back(self, place: int) -> None:
        """Return the lease at this place of those that are held."""
        lease = self.held.pop(place)
        if lease.has_only_claims and self._chance.random() < 0.5:
            assert self._claims.terminate(lease.id).id == lease.id
        else:
            self._claims.release(lease.id)


class Claiming(Actor):
    """Claims anything."""

    def turn(self) -> None:
        request = self._chance.choice(REQUESTS)
        fields = self._chance.choice(CONSUMERS)
        if request.locality != ANY:
            fields = {}
        if self._chance.random() < WITH_KEY:
            key = f"key-{self._chance.randrange(KEYS)}"
            fields = {**fields, "request_key": key, "request_digest": "d"}
        self.claim(
            request,
            self._chance.choice(policies.names()),
            project_id=self._chance.choice(PROJECTS),
            **fields,
        )


class Reserving(Actor):
    """Makes a reservation, launches leases in it, and cancels it before or after they are returned."""

    def __init__(self, claims: Claims, name: str, seed: int) -> None:
        super().__init__(claims, name, seed)
        self._reservation: str | None = None

    def turn(self) -> None:
        if self._reservation is None:
            self._reservation = self._reserve()
        elif self._chance.random() < 0.3:
            self._cancel()
        else:
            request = RESERVED.with_(count=self._chance.choice((1, 2)))
            self.claim(request, project_id="free", reservation_id=self._reservation)

    def end(self) -> None:
        super().end()
        self._cancel()

    def _reserve(self) -> str | None:
        now = scheduling.database_of(self._claims).now()
        wanted = Reservation(
            *(f"r-{self.name}-{self._turns}", "free", "user-1", "n", ReservationStatus.PENDING),
            *(RESERVED.to_dict(), now, now + datetime.timedelta(hours=1), now),
        )
        try:
            return self._claims.reservations.create(wanted, RESERVED).id
        except exceptions.NoCapacity:
            return None

    def _cancel(self) -> None:
        if self._reservation is not None:
            self._claims.reservations.cancel(self._reservation)
        self._reservation = None


def wrong_books(connection: Connection) -> list[str]:
    """Return what is wrong with the GPUs, the claims and what projects use, at one moment."""
    wrong = []
    gpu, claim, share = models.GpuRow, models.ClaimRow, models.ReservedShareRow
    kept = select(share.gpu_uuid, func.sum(share.memory_mb)).group_by(share.gpu_uuid)
    kept_mb = dict(connection.execute(kept.where(share.kept, share.lease_id.is_(None))).all())
    reserved_mb = dict(connection.execute(select(gpu.uuid, gpu.reserved_mb)).all())
    for row in connection.execute(BOOKS):
        reserved = reserved_mb[row.uuid]
        right = row.claimed_mb == row.used_mb <= row.memory_mb - reserved
        right = right and row.leases == row.holders and reserved == kept_mb.get(row.uuid, 0)
        if row.exclusive_lease_id is not None:
            right = right and row.holders == 1 and row.used_mb == row.memory_mb
        if not right:
            wrong.append(f"{row}, {reserved} MiB reserved")

    ports = connection.execute(select(claim.daemon_host, claim.daemon_port))
    own_ports = connection.execute(select(gpu.host_name, gpu.daemon_port))
    addresses = connection.execute(select(claim.masked_host, claim.masked_ip))
    daemons, masked = Counter(map(tuple, ports)), Counter(map(tuple, addresses))
    taken = set(map(tuple, own_ports))
    wrong += [f"port {one}" for one, n in daemons.items() if one[1] and (n > 1 or one in taken)]
    wrong += [f"address {one}" for one, n in masked.items() if one[0] and n > 1]

    for project, quota in QUOTAS.items():
        used = projects.usage(connection, project)
        if not limits.fits(quota, used, limits.NOTHING):
            wrong.append(f"{project} uses {used}")
    return wrong + wrong_placements(connection)


def wrong_placements(connection: Connection) -> list[str]:
    """Return the leases that have other GPUs than they asked for."""
    gpu, claim, lease = models.GpuRow, models.ClaimRow, models.LeaseRow
    columns = (lease.id, lease.count, lease.mode, lease.memory_mb, lease.requirements)
    of_gpu = (gpu.host_name, gpu.memory_mb.label("whole"), gpu.exclusive_lease_id)
    query = select(*columns, *of_gpu, claim.memory_mb.label("claimed"))
    joined = query.select_from(lease).join(claim).join(gpu, gpu.uuid == claim.gpu_uuid)
    found: dict[str, list[Any]] = {}
    for row in connection.execute(joined):
        found.setdefault(row.id, []).append(row)
    wrong = []
    for lease_id, rows in found.items():
        first = rows[0]
        hosts, wanted = {row.host_name for row in rows}, first.requirements.get("hosts")
        sizes = {ONE: 1, SPREAD: len(rows)}
        right = len(rows) == first.count and len(hosts) == sizes.get(wanted, len(hosts))
        for row in rows:
            exclusive = row.mode == EXCLUSIVE
            right = right and row.claimed == (row.whole if exclusive else row.memory_mb)
            right = right and row.exclusive_lease_id == (lease_id if exclusive else None)
        if not right:
            wrong.append(f"{lease_id}: {rows}")
    return wrong


def shown_gpus(claims: Claims) -> dict[str, tuple[Any, ...]]:
    """Return the GPUs as a client knows them, by UUID."""
    with scheduling.lock_of(claims):
        return {
            gpu.uuid: (
                *(gpu.used_mb, gpu.reserved_mb, gpu.exclusive),
                *(gpu.generation, gpu.leases, gpu.given),
            )
            for gpu in scheduling.pool_of(claims)
        }


def stored_gpus(database: Database) -> dict[str, tuple[Any, ...]]:
    """Return the GPUs as they are stored, by UUID."""
    gpu = models.GpuRow
    columns = (gpu.used_mb, gpu.reserved_mb, gpu.exclusive_lease_id.is_not(None))
    with database.reading() as connection:
        rows = connection.execute(select(gpu.uuid, *columns, gpu.generation, gpu.leases, gpu.given))
        return {
            uuid: (used, reserved, bool(held), *rest) for uuid, used, reserved, held, *rest in rows
        }
