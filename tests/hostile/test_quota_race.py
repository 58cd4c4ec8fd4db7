# SPDX-License-Identifier: Apache-2.0
"""One project claims from many processes at once, on a real database server: never more than it may.

GPUs are plentiful, so that claims take different ones and only the quota is in their way.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest

from gsaas import exceptions
from gsaas.db import endpoints, gpus, models, projects
from gsaas.db.database import Database
from gsaas.limits.base import UNLIMITED
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.request import Request
from tests.support import rows
from tests.support.racing import PROCESSES
from tests.support.scheduling import open_claims
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.services

WORKERS = 6
ROUNDS = 15
PROJECTS = ("blue", "red")
QUOTA = {"cgpus": 3, "gpu_memory_mb": UNLIMITED, "leases": UNLIMITED}


def test_claims_at_once_never_exceed_the_quota_together(database):
    report_cloud(database)
    url = database.engine.url.render_as_string(hide_password=False)
    with (
        PROCESSES.Manager() as manager,
        ProcessPoolExecutor(WORKERS + 1, mp_context=PROCESSES) as executor,
    ):
        start, finished = manager.Barrier(WORKERS + 1), manager.Event()
        watcher = executor.submit(watch, url, start, finished)
        workers = [executor.submit(work, url, number, start) for number in range(WORKERS)]
        try:
            outcome = sum((worker.result() for worker in workers), Counter())
        finally:
            finished.set()
            most = watcher.result()
    assert outcome.keys() == {"claimed", "refused"}
    assert max(most.values()) <= QUOTA["cgpus"]
    with database.read() as session:
        assert {projects.usage(session.connection(), project)["cgpus"] for project in PROJECTS} == {
            0
        }


def test_a_claim_waits_for_the_one_before_it_and_counts_it(database):
    """The second claim begins while the first is not yet committed, and is refused."""
    report_cloud(database)
    claims = [open_claims(database) for _ in range(2)]
    request = Request(2, "shared", 10)
    claims[0].claim(lease("warm", request, "blue"), request, quota=QUOTA)
    claims[0].release("warm")
    outcome = []

    def second() -> None:
        try:
            outcome.append(claims[1].claim(lease("b", request, "blue"), request, quota=QUOTA))
        except exceptions.QuotaExceeded as refusal:
            outcome.append(refusal)

    thread = threading.Thread(target=second)
    with database.write() as session:
        projects.lock(session.connection(), "blue")
        thread.start()
        session.add(counted_lease("a"))
    thread.join(PATIENCE)
    assert [type(each) for each in outcome] == [exceptions.QuotaExceeded]


def counted_lease(lease_id: str) -> models.LeaseRow:
    claims = [
        models.ClaimRow(
            position=position,
            gpu_uuid="GPU-0-0",
            memory_mb=10,
            masked_ip=f"169.254.71.{position + 1}",
            masked_port=8308,
        )
        for position in range(2)
    ]
    columns = {"count": 2, "memory_mb": 10, "project_id": "blue", "policy": "first-fit"}
    return rows.lease(lease_id, **columns, claims=claims)


def report_cloud(database: Database) -> None:
    with database.write() as session:
        for host in range(8):
            infos = [
                gpus.GpuInfo(f"GPU-{host}-{index}", index, "model", 1000, 8308)
                for index in range(4)
            ]
            gpus.register(session, f"gpu{host}", "192.0.2.1", infos)
            endpoints.register(session, f"gpu{host}", {})


def lease(lease_id: str, request: Request, project: str) -> Lease:
    return Lease(
        status=Status.QUEUED,
        id=lease_id,
        project_id=project,
        user_id="user-1",
        name="training",
        remoting="rcuda",
        **request.to_dict(),
    )


def work(url: str, number: int, start: threading.Barrier) -> Counter[str]:
    chance = random.Random(number)  # noqa: S311 - the same course in every run
    database = Database.open(url)
    claims = open_claims(database)
    outcome: Counter[str] = Counter()
    held: list[str] = []
    start.wait(PATIENCE)
    for turn in range(ROUNDS):
        request = Request(chance.choice([1, 2]), "shared", 10)
        wanted = lease(f"lease-{number}-{turn}", request, chance.choice(PROJECTS))
        try:
            claims.claim(wanted, request, "least-load-fit", QUOTA)
        except exceptions.QuotaExceeded:
            outcome["refused"] += 1
        except Exception as error:  # noqa: BLE001 - the test shows it
            outcome[repr(error)] += 1
        else:
            outcome["claimed"] += 1
            held.append(wanted.id)
        # The last one is kept while others try, so that there is something to count.
        while len(held) > chance.choice([0, 1]):
            claims.release(held.pop(0))
    for lease_id in held:
        claims.release(lease_id)
    database.close()
    return outcome


def watch(url: str, start: threading.Barrier, finished: threading.Event) -> dict[str, int]:
    """Return the most cGPUs that each project was ever seen to hold."""
    database = Database.open(url)
    most = dict.fromkeys(PROJECTS, 0)
    start.wait(PATIENCE)
    while not finished.is_set():
        for project in PROJECTS:
            with database.read() as session:
                most[project] = max(
                    most[project], projects.usage(session.connection(), project)["cgpus"]
                )
    database.close()
    return most
