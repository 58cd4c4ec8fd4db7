# SPDX-License-Identifier: Apache-2.0
"""Six processes with three threads each claim and release at once, on a real database server.

Each process has its own cache; its threads claim in batches. A seventh process looks at the books all the time, in one
statement and so at one moment.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import func, select

from gsaas import exceptions
from gsaas.db import endpoints, gpus, models
from gsaas.db.database import Database
from gsaas.gpgpums import policies
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.ports import PortRange
from gsaas.objects.request import Request
from tests.support import scheduling
from tests.support.racing import PROCESSES
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.services

WORKERS = 6
THREADS = 3
ROUNDS = 12
HELD_AT_MOST = 3

REQUESTS = (
    Request(1, "shared", 300),
    Request(3, "shared", 200),
    Request(1),
    Request(2),
    Request(1, locality="local"),
    Request(2, "shared", 400, "remote"),
)
MOST_GPUS = 3
"""No request can make more GPUs unusable for others."""


def test_nothing_is_over_committed_or_lost_when_gpus_are_scarce(database):
    report_cloud(database, hosts=2, gpus_each=3)

    outcome = race(database)

    assert outcome.keys() == {"claimed", "no capacity"}
    assert_all_returned(database, outcome["claimed"])


def test_nobody_is_refused_while_there_is_enough_for_all(database):
    hosts = WORKERS * THREADS * HELD_AT_MOST * MOST_GPUS // 4 + 1
    report_cloud(database, hosts=hosts, gpus_each=4)

    outcome = race(database)

    assert outcome == {"claimed": WORKERS * THREADS * ROUNDS}
    assert_all_returned(database, WORKERS * THREADS * ROUNDS)


class Dawdler(Policy):
    """least-load-fit, but the first time it thinks, somebody else acts."""

    name = "dawdler"

    def __init__(self, other: Callable[[], object]) -> None:
        self.others = iter([other])

    def order(self, candidates, request):
        next(self.others, lambda: None)()
        return candidates.most_free_first()


def claim_while(monkeypatch: pytest.MonkeyPatch, database: Database, other: Callable) -> str:
    """Claim one whole GPU while *other* happens between choosing and writing; return its UUID."""
    policy = Dawdler(other)
    monkeypatch.setitem(policies.installed(), policy.name, policy)
    lease = open_claims(database).claim(new_lease("slow", Request(1)), Request(1), policy.name)
    return lease.claims[0].gpu_uuid


SERVERS_WHERE_CLAIMS_OVERLAP = pytest.mark.parametrize(
    "server", ["mariadb", "postgresql"], indirect=True
)
"""SQLite lets one transaction write at a time, so there nobody is overtaken."""


@SERVERS_WHERE_CLAIMS_OVERLAP
def test_who_is_overtaken_chooses_again(database, monkeypatch):
    report_cloud(database, hosts=1, gpus_each=2)
    rival = open_claims(database)

    chosen = claim_while(
        monkeypatch, database, lambda: rival.claim(new_lease("quick", Request(1)), Request(1))
    )

    assert chosen == "GPU-0-1"
    with database.read() as session:
        held = session.execute(select(models.GpuRow.uuid, models.GpuRow.exclusive_lease_id))
        assert dict(held.all()) == {"GPU-0-0": "quick", "GPU-0-1": "slow"}


@SERVERS_WHERE_CLAIMS_OVERLAP
def test_who_is_overtaken_by_the_last_that_fits_is_refused_and_leaves_nothing(
    database, monkeypatch
):
    report_cloud(database, hosts=1, gpus_each=2)
    rival = open_claims(database)

    with pytest.raises(exceptions.NoCapacity):
        claim_while(
            monkeypatch, database, lambda: rival.claim(new_lease("quick", Request(2)), Request(2))
        )

    with database.read() as session:
        assert session.scalars(select(models.LeaseRow.id)).all() == ["quick"]


@SERVERS_WHERE_CLAIMS_OVERLAP
def test_a_gpu_that_is_disabled_while_it_is_chosen_is_not_given(database, monkeypatch):
    report_cloud(database, hosts=1, gpus_each=2)

    def disable() -> None:
        with database.write() as session:
            gpus.set_disabled(session, "GPU-0-0", True, "smells")

    assert claim_while(monkeypatch, database, disable) == "GPU-0-1"


def report_cloud(database: Database, hosts: int, gpus_each: int) -> None:
    with database.write() as session:
        for host in range(hosts):
            infos = [
                gpus.GpuInfo(f"GPU-{host}-{index}", index, "model", 1000, 8308)
                for index in range(gpus_each)
            ]
            gpus.register(session, f"gpu{host}", "192.0.2.1", infos)
            endpoints.register(session, f"gpu{host}", {})
        endpoints.register(session, "compute", {})


def race(database: Database) -> Counter[str]:
    """Let everybody claim and release until all had their turns; count what happened."""
    url = database.engine.url.render_as_string(hide_password=False)
    with (
        PROCESSES.Manager() as manager,
        ProcessPoolExecutor(WORKERS + 1, mp_context=PROCESSES) as executor,
    ):
        start, finished = manager.Barrier(WORKERS + 1), manager.Event()
        watcher = executor.submit(watch, url, start, finished)
        workers = [
            executor.submit(claim_and_release, url, number, start) for number in range(WORKERS)
        ]
        try:
            return sum((worker.result() for worker in workers), Counter())
        finally:
            finished.set()
            observed = watcher.result()
            assert observed.pop("observations") > 0
            assert observed == {}


def open_claims(database: Database, **options: Any) -> Claims:
    # Few ports, so that claims of different GPUs want the same ones.
    ports = {"rcuda": PortRange(20000, 20063)}
    return scheduling.open_claims(database, daemon_ports=ports, **options)


def new_lease(lease_id: str, request: Request) -> Lease:
    return Lease(
        status=Status.QUEUED,
        id=lease_id,
        project_id="project-1",
        user_id="user-1",
        name="training",
        remoting="rcuda",
        **request.to_dict(),
    )


def claim_and_release(url: str, number: int, start: threading.Barrier) -> Counter[str]:
    """One worker. It reports only what it knows how to name: anything else ends up as its own
    name."""
    database = Database.open(url)
    claims = open_claims(database)
    start.wait(PATIENCE)
    names = [f"{number}-{thread}" for thread in range(THREADS)]
    chances = [random.Random(name) for name in names]  # noqa: S311 - the same course in every run
    with ThreadPoolExecutor(THREADS) as threads:
        outcomes = threads.map(work, itertools.repeat(claims), names, chances)
        outcome = sum(outcomes, Counter[str]())
    database.close()
    return outcome


def work(claims: Claims, name: str, chance: random.Random) -> Counter[str]:
    """One thread of a worker."""
    outcome: Counter[str] = Counter()
    held: list[str] = []
    for turn in range(ROUNDS):
        request = chance.choice(REQUESTS)
        lease = new_lease(f"lease-{name}-{turn}", request)
        try:
            held.append(claims.claim(lease, request, chance.choice(policies.names())).id)
            outcome["claimed"] += 1
        except exceptions.NoCapacity:
            outcome["no capacity"] += 1
        except Exception as error:  # noqa: BLE001 - the test shows it
            outcome[repr(error)] += 1
        while len(held) > chance.randrange(HELD_AT_MOST):
            claims.release(held.pop(chance.randrange(len(held))))
    for lease_id in held:
        claims.release(lease_id)
    return outcome


BOOKS = (
    select(
        models.GpuRow.uuid,
        models.GpuRow.memory_mb,
        models.GpuRow.used_mb,
        models.GpuRow.exclusive_lease_id,
        models.GpuRow.leases,
        func.coalesce(func.sum(models.ClaimRow.memory_mb), 0).label("claimed_mb"),
        func.count(models.ClaimRow.lease_id.distinct()).label("holders"),
    )
    .outerjoin(models.ClaimRow, models.ClaimRow.gpu_uuid == models.GpuRow.uuid)
    .group_by(
        models.GpuRow.uuid,
        models.GpuRow.memory_mb,
        models.GpuRow.used_mb,
        models.GpuRow.exclusive_lease_id,
        models.GpuRow.leases,
    )
)


def watch(url: str, start: threading.Barrier, finished: threading.Event) -> Counter[str]:
    """Look at all GPUs and their claims again and again; report each wrong one by its figures."""
    database = Database.open(url)
    outcome: Counter[str] = Counter()
    start.wait(PATIENCE)
    while not finished.is_set():
        with database.read() as session:
            rows = session.execute(BOOKS).all()
        outcome["observations"] += 1
        for row in rows:
            right = row.claimed_mb == row.used_mb <= row.memory_mb and row.leases == row.holders
            if row.exclusive_lease_id is not None:
                right = right and row.holders == 1 and row.used_mb == row.memory_mb
            if not right:
                outcome[str(row)] += 1
    database.close()
    return outcome


def assert_all_returned(database: Database, leases: int) -> None:
    with database.read() as session:
        assert session.scalar(select(func.sum(models.GpuRow.used_mb))) == 0
        assert session.scalar(select(func.sum(models.GpuRow.leases))) == 0
        assert session.scalars(select(models.GpuRow.exclusive_lease_id).distinct()).all() == [None]
        assert session.scalars(select(models.ClaimRow)).all() == []
        assert len(session.scalars(select(models.LeaseRow.released_at)).all()) == leases
        assert None not in session.scalars(select(models.LeaseRow.released_at)).all()
