# SPDX-License-Identifier: Apache-2.0
"""A Galera cluster whose two nodes are both written to: what counts holds as on one server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy

from gsaas import exceptions
from gsaas.db import endpoints, gpus, limits, migration, models
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.wait_queue import WaitPolicy
from gsaas.limits.base import UNLIMITED
from gsaas.objects.request import Request
from tests.services.test_claims_race import open_claims
from tests.support import rows
from tests.support.galera import cluster
from tests.support.waiting import until

pytestmark = pytest.mark.services

ROUNDS = 30
QUOTA = {"cgpus": 1, "gpu_memory_mb": UNLIMITED, "leases": UNLIMITED}
ONE = Request(1)
ELSEWHERE = (Request(1, host="gpu0"), Request(1, host="gpu1"))
"""Requests for different GPUs, so that nothing but the quota is in the way of both."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[Database, Database]]:
    with cluster() as (first, second):
        migration.upgrade(first.create("gsaas"))
        databases = Database.open(first.url("gsaas")), Database.open(second.url("gsaas"))
        until(
            lambda: migration.version(databases[1]) == migration.head(), "the tables on both nodes"
        )
        with databases[0].write() as session:
            for host in ("gpu0", "gpu1"):
                infos = [gpus.GpuInfo(f"{host}-{n}", n, "model", 1000, 8308) for n in range(4)]
                gpus.register(session, host, "192.0.2.1", infos)
                endpoints.register(session, host, {})
        yield databases
        for database in databases:
            database.close()


@pytest.fixture
def both(nodes: tuple[Database, Database]) -> Iterator[list[Claims]]:
    """The claims of two processes, each at a node of its own; all leases are gone on both nodes afterwards."""
    yield [open_claims(database) for database in nodes]
    with nodes[0].write() as session:
        for table in ("claims", "lease_events", "leases"):
            session.execute(sqlalchemy.text("UPDATE gpus SET exclusive_lease_id = NULL"))
            session.execute(sqlalchemy.text(f"DELETE FROM {table}"))


def used(database: Database) -> int:
    with database.reading() as connection:
        return limits.usage(connection, "project-1")["cgpus"]


def at_once(both: list[Claims], act) -> list[str]:
    """Call *act* with each of the claims and a number at the same moment; return the names of what happened."""
    start = threading.Barrier(2)

    def one(number: int) -> str:
        start.wait()
        try:
            return act(both[number], number)
        except exceptions.GsaasError as refusal:
            return type(refusal).__name__

    with ThreadPoolExecutor(2) as pool:
        return sorted(pool.map(one, range(2)))


def test_of_two_claims_at_two_nodes_a_quota_admits_one(
    nodes: tuple[Database, Database], both: list[Claims]
):
    for turn in range(ROUNDS):

        def claim(claims: Claims, number: int, turn: int = turn) -> str:
            lease_id = f"lease-{turn}-{number}"
            claims.claim(
                rows.new_lease(lease_id, mode="exclusive", memory_mb=None),
                ELSEWHERE[number],
                quota=QUOTA,
            )
            return lease_id

        outcome = at_once(both, claim)
        granted = [each for each in outcome if each.startswith("lease-")]
        assert len(granted) == 1, (turn, outcome)
        assert set(outcome) - set(granted) == {"QuotaExceeded"}
        both[turn % 2].returns.release(until_known(nodes[turn % 2], granted[0]))
        for database in nodes:
            until(lambda database=database: used(database) == 0, "the return at both nodes")


def until_known(database: Database, lease_id: str) -> str:
    """Return *lease_id* once the node of *database* has the lease."""
    known = sqlalchemy.select(models.LeaseRow.id).where(models.LeaseRow.id == lease_id)

    def look() -> str | None:
        with database.reading() as connection:
            return connection.scalar(known)

    return until(look)


def test_of_two_requests_at_two_nodes_a_bound_of_the_queue_admits_one(
    nodes: tuple[Database, Database], both: list[Claims]
):
    with nodes[0].write() as session:
        session.execute(sqlalchemy.text("UPDATE gpus SET disabled = 1"))
    policy = WaitPolicy(max_waiting=1)
    for turn in range(ROUNDS):

        def join(claims: Claims, number: int, turn: int = turn) -> str:
            lease = rows.new_lease(f"lease-{turn}-{number}", mode="exclusive", memory_mb=None)
            return claims.queue.join(lease, ONE, policy=policy).id

        outcome = at_once(both, join)
        assert len([each for each in outcome if each.startswith("lease-")]) == 1, (turn, outcome)
        assert "QueueFull" in outcome
        waiting = next(each for each in outcome if each.startswith("lease-"))
        both[0].queue.leave(until_known(nodes[0], waiting))
        for database in nodes:
            until(lambda database=database: not queued(database))


def queued(database: Database) -> int:
    query = sqlalchemy.select(models.LeaseRow.id).where(models.LeaseRow.status == "QUEUED")
    with database.reading() as connection:
        return len(connection.execute(query).all())
