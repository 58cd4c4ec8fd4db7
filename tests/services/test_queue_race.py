# SPDX-License-Identifier: Apache-2.0
"""Processes that ask, wait, hold and give back, all at once, on a real database server.

Nobody audits: whoever gives something back has to see to whoever waits, or he waits for ever.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest
from sqlalchemy import func, select

from gsaas import exceptions
from gsaas.db import gpus, models
from gsaas.db.database import Database
from gsaas.objects.gpu_report import GpuInfo
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.request import Request
from tests.services.test_claims_race import BOOKS
from tests.support.racing import PROCESSES
from tests.support.scheduling import open_claims
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.services

WORKERS = 6
ROUNDS = 8

REQUESTS = (Request(1), Request(2), Request(1, "shared", 400), Request(3, "shared", 300))


def test_everybody_who_waits_is_served_once_and_nobody_for_ever(database):
    infos = [GpuInfo(f"GPU-{index}", index, "model", 1000, 8308) for index in range(3)]
    with database.write() as session:
        gpus.register(session, "gpu1", "192.0.2.1", infos)
    url = database.engine.url.render_as_string(hide_password=False)
    claims = open_claims(database, attempts=50)
    everything = Request(3)
    claims.claim(new_lease("before", everything), everything)

    with (
        PROCESSES.Manager() as manager,
        ProcessPoolExecutor(WORKERS, mp_context=PROCESSES) as executor,
    ):
        start = manager.Barrier(WORKERS)
        workers = [executor.submit(work, url, number, start) for number in range(WORKERS)]
        # So that everybody has to wait at least once, however fast some of them are.
        until(lambda: waiting(database) == WORKERS, "everybody to wait")
        claims.terminate("before")
        outcome = sum((worker.result() for worker in workers), Counter())

    assert outcome["served"] == WORKERS * ROUNDS
    assert outcome["waited"] >= WORKERS
    with database.read() as session:
        assert session.scalar(select(func.sum(models.GpuRow.used_mb))) == 0
        assert session.scalars(select(models.ClaimRow)).all() == []
        statuses = session.scalars(select(models.LeaseRow.status).distinct()).all()
        assert statuses == [Status.RELEASED]
        grants = session.execute(
            select(func.count(), func.count(models.LeaseEventRow.lease_id.distinct())).where(
                models.LeaseEventRow.event == "claim"
            )
        ).one()
        served = WORKERS * ROUNDS + 1
        assert tuple(grants) == (served, served)


def work(url: str, number: int, start: threading.Barrier) -> Counter[str]:
    """Be one API worker with one client, who wants this and that, one after the other."""
    chance = random.Random(number)  # noqa: S311 - the same course in every run
    database = Database.open(url)
    claims = open_claims(database, attempts=50)
    outcome: Counter[str] = Counter()
    start.wait(PATIENCE)
    for turn in range(ROUNDS):
        request = chance.choice(REQUESTS)
        name = f"lease-{number}-{turn}"
        try:
            claims.claim(new_lease(name, request), request)
        except exceptions.NoCapacity:
            claims.queue.join(new_lease(name, request), request)
            outcome["waited"] += 1
            until(lambda name=name: status(database, name) == "ACTIVE", f"{name}")
        with database.read() as session:
            assert all(
                row.claimed_mb == row.used_mb <= row.memory_mb for row in session.execute(BOOKS)
            )
        outcome["served"] += 1
        claims.terminate(name)
    database.close()
    return outcome


def waiting(database: Database) -> int:
    with database.read() as session:
        queued = models.LeaseRow.status == Status.QUEUED
        return session.scalar(select(func.count()).select_from(models.LeaseRow).where(queued))


def status(database: Database, lease_id: str) -> str:
    with database.read() as session:
        return session.scalar(select(models.LeaseRow.status).where(models.LeaseRow.id == lease_id))


def new_lease(lease_id: str, request: Request) -> Lease:
    return Lease(
        status=Status.QUEUED,
        id=lease_id,
        project_id="project-1",
        user_id="user-1",
        name="training",
        remoting="rcuda",
        has_server=False,
        **request.to_dict(),
    )
