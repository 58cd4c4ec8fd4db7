# SPDX-License-Identifier: Apache-2.0
"""The queue while other transactions have locked what it needs: nobody audits, and nobody may be forgotten."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event

from gsaas.db import models, projects
from gsaas.db.database import Database
from gsaas.gpgpums.changes import WaitPolicy
from gsaas.gpgpums.claims import Claims
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.ports import PortRange
from gsaas.objects.request import Request
from tests.services.batches import PART, WHOLE, claim, lock_gpus
from tests.services.batches import attempts as attempts
from tests.services.batches import claims as claims
from tests.services.test_claims_race import new_lease, report_cloud
from tests.support.scheduling import open_claims
from tests.support.waiting import PATIENCE, until

pytestmark = [
    pytest.mark.services,
    pytest.mark.parametrize("server", ["mariadb", "postgresql"], indirect=True),
]


def test_a_lease_is_served_although_its_gpu_was_locked_when_it_joined(database, attempts):
    """By a claim of another process, which advances no queue when it ends."""
    report_cloud(database, hosts=1, gpus_each=1)
    claims = open_claims(database)

    with ThreadPoolExecutor(1) as threads:
        with database.writing() as connection:
            lock_gpus(connection, ["GPU-0-0"])
            joining = threads.submit(join, claims, "waits", PART)
            until(lambda: attempts)  # it has seen that the GPU is locked
        joining.result(PATIENCE)

    assert stored(database, "waits") == (Status.CLAIMED, ["GPU-0-0"])


def test_a_lease_is_not_ended_for_the_ports_of_one_host_while_a_gpu_of_another_is_locked(
    database, attempts
):
    report_cloud(database, hosts=2, gpus_each=1)
    claims = open_claims(database, daemon_ports={"rcuda": PortRange(20000, 20000)})
    [taken] = claim(claims, "takes the port of its host", PART).claims
    free = {"GPU-0-0": "GPU-1-0", "GPU-1-0": "GPU-0-0"}[taken.gpu_uuid]

    with ThreadPoolExecutor(1) as threads:
        with database.writing() as connection:
            lock_gpus(connection, [free])
            joining = threads.submit(join, claims, "waits", PART)
            until(lambda: attempts)
        joining.result(PATIENCE)

    assert stored(database, "waits") == (Status.CLAIMED, [free])


def test_leases_that_wait_for_their_project_to_join_the_queue_keep_no_claim_waiting(
    database, claims
):
    """One that changes GPUs has a writer, and a process has two: each further one would have to be made."""
    claim(claims, "first", PART)
    made = []

    @event.listens_for(database.engine, "before_cursor_execute")
    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        made.extend(re.findall("INSERT INTO gpu_writers", statement))

    names = ["one", "two", "three"]
    with ThreadPoolExecutor(len(names)) as threads:
        with database.writing() as connection:
            projects.lock(connection, new_lease("any", WHOLE).project_id)
            joining = [threads.submit(join, claims, name, WHOLE, max_waiting=9) for name in names]
            claim(claims, "second", PART)
            claims.release("second")
            assert not any(one.done() for one in joining)
        for one in joining:
            one.result(PATIENCE)

    assert made == []


def join(claims: Claims, name: str, request: Request, max_waiting: int = -1) -> Lease:
    return claims.queue.join(
        new_lease(name, request), request, policy=WaitPolicy(max_waiting=max_waiting)
    )


def stored(database: Database, lease_id: str) -> tuple[str, list[str]]:
    """Return the status of a lease, and the GPUs that it has."""
    with database.read() as session:
        lease = session.get(models.LeaseRow, lease_id)
        return lease.status, [share.gpu_uuid for share in lease.claims]
