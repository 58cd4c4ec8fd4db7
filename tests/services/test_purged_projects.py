# SPDX-License-Identifier: Apache-2.0
"""The rows of projects, which claims lock, are deleted when no lease is left; quotas hold while that happens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy import select

from gsaas import exceptions
from gsaas.db import projects as project_rows
from gsaas.db.database import Database, retried
from gsaas.db.models import ClaimRow, LeaseEventRow, LeaseRow, ProjectRow, table_of
from gsaas.gpgpums.claims import Claims
from gsaas.limits.base import UNLIMITED
from gsaas.objects.request import Request
from tests.services.test_claims_race import open_claims, report_cloud
from tests.support import rows

pytestmark = pytest.mark.services

QUOTA = {"cgpus": 1, "gpu_memory_mb": UNLIMITED, "leases": UNLIMITED}
ELSEWHERE = (Request(1, host="gpu0"), Request(1, host="gpu1"))
"""Requests for different GPUs, so that nothing but the quota is in the way of both."""
ROUNDS = 15


@retried
def purge(database: Database) -> int:
    with database.writing() as connection:
        return project_rows.purge(connection, 2)


@contextmanager
def purged_all_the_time(database: Database) -> Iterator[list[int]]:
    """Purge again and again; yield a list of how many rows were deleted each time."""
    deleted: list[int] = []
    done = threading.Event()

    def go_on() -> None:
        while not done.is_set():
            deleted.append(purge(database))

    with ThreadPoolExecutor(1) as pool:
        purging = pool.submit(go_on)
        try:
            yield deleted
        finally:
            done.set()
            purging.result()


def claim_at_once(both: list[Claims], turn: int) -> list[str]:
    """Let both claim for one project at the same moment; return the lease, or what was in its way, of each."""
    start = threading.Barrier(2)

    def one(number: int) -> str:
        lease_id = f"lease-{turn}-{number}"
        lease = rows.new_lease(lease_id, mode="exclusive", memory_mb=None, project_id="busy")
        start.wait()
        try:
            return both[number].claim(lease, ELSEWHERE[number], quota=QUOTA).id
        except exceptions.GsaasError as refusal:
            return type(refusal).__name__

    with ThreadPoolExecutor(2) as pool:
        return sorted(pool.map(one, range(2)))


def projects(database: Database) -> set[str]:
    with database.reading() as connection:
        return set(connection.scalars(select(ProjectRow.id)))


def test_a_project_is_forgotten_with_its_last_lease(database: Database):
    with database.write() as session:
        session.add_all(ProjectRow(id=name) for name in ("a", "b", "c", "history", "live"))
        session.add(rows.lease("1", project_id="live"))
        ended = {"status": "RELEASED", "released_at": rows.second(1)}
        session.add(rows.lease("2", project_id="history", **ended))
    assert [purge(database) for _ in range(3)] == [2, 1, 0]
    assert projects(database) == {"history", "live"}


def test_a_quota_admits_one_of_two_while_rows_of_projects_are_deleted(database: Database):
    report_cloud(database, hosts=2, gpus_each=1)
    both = [open_claims(database), open_claims(database)]
    with purged_all_the_time(database) as deleted:
        for turn in range(ROUNDS):
            granted, refusal = reversed(claim_at_once(both, turn))
            assert (granted.startswith("lease-"), refusal) == (True, "QuotaExceeded"), turn
            both[0].release(granted)
            with database.write() as session:  # as when the history is purged
                session.execute(table_of(ClaimRow).delete())
                session.execute(table_of(LeaseEventRow).delete())
                session.execute(table_of(LeaseRow).delete())
    assert sum(deleted) > 0
