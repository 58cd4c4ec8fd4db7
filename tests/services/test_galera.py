# SPDX-License-Identifier: Apache-2.0
"""A Galera cluster whose two nodes are both written to: what counts holds as on one server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from oslo_utils import timeutils

import gsaas.conf
from gsaas import exceptions
from gsaas.db import endpoints, gpus, migration, models, projects
from gsaas.db.database import Database, retried
from gsaas.db.engines import section
from gsaas.gpgpums.changes import WaitPolicy
from gsaas.gpgpums.claims import Claims
from gsaas.limits.base import UNLIMITED
from gsaas.objects.request import Request
from tests.api.world import World
from tests.services.test_claims_race import open_claims
from tests.services.test_purged_projects import claim_at_once, purged_all_the_time
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


def used(database: Database, project: str = "project-1") -> int:
    with database.reading() as connection:
        return projects.usage(connection, project)["cgpus"]


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
        both[turn % 2].release(until_known(nodes[turn % 2], granted[0]))
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


def test_keepalives_and_departures_at_two_nodes_at_once_do_not_fail(
    nodes: tuple[Database, Database], both: list[Claims], tmp_path: Path
):
    apis = []
    for number, database in enumerate(nodes):
        (folder := tmp_path / str(number)).mkdir()
        apis.append(World.build(folder, database=database))
    with nodes[0].write() as session:
        session.execute(sqlalchemy.text("UPDATE gpus SET disabled = 1"))
    for turn in range(ROUNDS):
        lease = rows.new_lease(
            f"{turn:08d}-0000-4000-8000-000000000000",
            mode="exclusive",
            memory_mb=None,
            project_id="blue",
            user_id="member",
        )
        both[0].queue.join(lease, ONE)
        known = until_known(nodes[1], lease.id)

        def keep(_claims: Claims, number: int, lease_id: str = known) -> str:
            answer = apis[number].call("member", "POST", f"/v1/leases/{lease_id}/keepalive")
            return str(answer.status_code)

        def leave(claims: Claims, _number: int, lease_id: str = known) -> str:
            return str(claims.queue.leave(lease_id))

        become(
            nodes,
            known,
            "CLAIMED",
            policy="spread",
            claimed_at=timeutils.utcnow(),
            keepalive=60,
            kept_until=timeutils.utcnow(),
        )
        assert at_once(both, keep) == ["200", "200"], turn
        become(nodes, known, "QUEUED")
        assert at_once(both, leave) == ["False", "True"], turn


def become(nodes: tuple[Database, Database], lease_id: str, status: str, **columns: Any) -> None:
    """Give a lease another status, and return once both nodes have it."""
    lease = models.LeaseRow.id == lease_id

    @retried  # what the other node has just committed, and this one not applied yet, aborts it
    def write() -> None:
        with nodes[0].write() as session:
            session.execute(
                sqlalchemy.update(models.LeaseRow).where(lease).values(status=status, **columns)
            )

    def look() -> bool:
        with nodes[1].reading() as connection:
            return (
                connection.scalar(sqlalchemy.select(models.LeaseRow.status).where(lease)) == status
            )

    write()
    until(look)


def test_of_two_claims_at_two_nodes_a_quota_admits_one_while_rows_of_projects_are_deleted(
    nodes: tuple[Database, Database], both: list[Claims]
):
    with nodes[0].write() as session:
        session.execute(sqlalchemy.text("UPDATE gpus SET disabled = 0"))
    with purged_all_the_time(nodes[1]) as deleted:
        for turn in range(ROUNDS):
            outcome = claim_at_once(both, turn)
            granted = [each for each in outcome if each.startswith("lease-")]
            assert len(granted) == 1, (turn, outcome)
            both[0].release(until_known(nodes[0], granted[0]))
            with nodes[0].write() as session:
                for table in ("claims", "lease_events", "leases"):
                    session.execute(sqlalchemy.text(f"DELETE FROM {table}"))
            for database in nodes:
                until(lambda database=database: used(database, "busy") == 0, "the return")
    assert sum(deleted) > 0


def test_a_controller_that_is_configured_to_wait_reads_what_another_has_written(
    nodes: tuple[Database, Database],
):
    url = nodes[1].engine.url.render_as_string(hide_password=False)
    conf = gsaas.conf.load(files=[])
    section(conf)
    conf.set_override("connection", url, "database")
    conf.set_override("mysql_wsrep_sync_wait", 1, "database")
    waiting = Database.connect(conf)
    for turn in range(ROUNDS):
        with nodes[0].write() as session:
            session.add(models.ProjectRow(id=f"written-{turn}"))
        with waiting.read() as session:
            assert session.get(models.ProjectRow, f"written-{turn}") is not None
            assert session.scalar(sqlalchemy.text("SELECT @@SESSION.wsrep_sync_wait")) == 1
    waiting.close()
