# SPDX-License-Identifier: Apache-2.0
"""Several engines find at the same moment that leases end: each is warned once, and ends once, on every database."""

from __future__ import annotations

import datetime
import itertools
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

import gsaas.conf
from gsaas.db import gpus, leases, migration
from gsaas.db.database import Database
from gsaas.engine.lease_ends import LeaseEnds
from gsaas.gpgpums.claims import Claims
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.request import Request
from tests.support.scheduling import open_claims

pytestmark = pytest.mark.services

ENGINES, LEASES = 4, 6
MINUTE = datetime.timedelta(minutes=1)
serial = itertools.count(1)


@pytest.fixture
def databases(database_url: str) -> Iterator[list[Database]]:
    """A cloud with two GPUs of 4000 MiB, as each engine has opened its database."""
    migration.upgrade(database_url)
    opened = [Database.open(database_url) for _ in range(ENGINES)]
    with opened[0].write() as session:
        infos = [gpus.GpuInfo(f"GPU-{n}", n, "model", 4000, 8308) for n in range(2)]
        gpus.register(session, "a", "192.0.2.1", infos)
    yield opened
    for database in opened:
        database.close()


def launch(claims: Claims, *, has_server: bool) -> str:
    request = Request(1, "shared", 1000)
    lease = Lease(
        *(f"lease-{next(serial)}", "p", "u", "n", Status.QUEUED),
        remoting="rcuda",
        has_server=has_server,
        duration=3600,
        **request.to_dict(),
    )
    return claims.claim(lease, request).id


def set_end(database: Database, lease_ids: list[str], end: datetime.datetime) -> None:
    with database.writing() as connection:
        for lease_id in lease_ids:
            leases.update(connection, lease_id, ends_at=end)


def all_look(engines: list[LeaseEnds]) -> list[str]:
    """Have all engines look at the same moment; return what they have to reconcile."""
    barrier = Barrier(ENGINES)

    def look(engine: LeaseEnds) -> list[str]:
        barrier.wait(timeout=60)
        return engine.audit()

    with ThreadPoolExecutor(ENGINES) as pool:
        return [lease_id for found in pool.map(look, engines) for lease_id in found]


def test_each_lease_is_warned_once_and_ends_once(databases: list[Database]):
    conf, database = gsaas.conf.load(files=[]), databases[0]
    claims = [open_claims(each, attempts=50) for each in databases]
    engines = [LeaseEnds(conf, *both) for both in zip(databases, claims, strict=True)]
    lease_ids = [launch(claims[0], has_server=number % 2 == 0) for number in range(LEASES)]

    set_end(database, lease_ids, database.now() + MINUTE)
    assert all_look(engines) == []
    set_end(database, lease_ids, database.now() - MINUTE)
    assert Counter(all_look(engines)) == Counter(lease_ids)
    assert all_look(engines) == []

    with database.reading() as connection:
        for lease_id in lease_ids:
            lease = leases.get(connection, lease_id)
            assert lease.status == (Status.RELEASING if lease.has_server else Status.RELEASED)
            events = Counter(event.event for event in leases.events(connection, lease_id))
            assert (events["ending"], events["end"], events["release"]) == (1, 1, 1)
    # Those with a VM return theirs once the engine has deleted it.
    with database.read() as session:
        used = sum(gpu.used_mb for gpu in gpus.page(session, limit=10))
    assert used == 1000 * LEASES // 2
