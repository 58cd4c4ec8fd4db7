# SPDX-License-Identifier: Apache-2.0
"""The simulator against the service: one history, and every choice the same."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from oslo_config import cfg

from gsaas.conf import gpgpums as options
from gsaas.db import gpus
from gsaas.db.database import Database
from gsaas.sim import policies
from gsaas.sim.cloud import REQUEST_MIX, Simulation, Site
from gsaas.sim.history import Demand
from tests.support import sqlite
from tests.unit.gpgpums.test_claims import new_lease, open_claims

pytestmark = pytest.mark.slow

SITE = Site(3, 4, 4000, "H200")


def history(seed: int, moments: int) -> list[Demand]:
    """Requests of a few sizes, for at most as many cGPUs at once as there are GPUs, so that none has to wait."""
    rng = random.Random(seed)
    demands, running = [], []
    for number in range(moments):
        now, duration = float(number), rng.uniform(1, 12)
        running = [(end, cgpus) for end, cgpus in running if end > now]
        count, memory = rng.choice([(1, None), (2, 3000), (1, 1000), (3, 1000), (2, 500)])
        if sum(cgpus for _, cgpus in running) + count <= SITE.hosts * SITE.gpus:
            running.append((now + duration, count))
            mode = "shared" if memory else "exclusive"
            demands.append(Demand(number, now, duration, count, mode, memory))
    return demands


@pytest.fixture
def database() -> Iterator[Database]:
    database = sqlite.in_memory(sqlite.tables())
    yield database
    database.close()


def served(database, demands: list[Demand], policy: str) -> dict[int, dict[str, int]]:
    """Return, for each request, the MiB that the service gives it of each GPU."""
    for host in range(SITE.hosts):
        name = f"host{host:04}"
        infos = [
            gpus.GpuInfo(f"{name}-{index}", index, SITE.model, SITE.memory_mb, 8308)
            for index in range(SITE.gpus)
        ]
        with database.write() as session:
            gpus.register(session, name, "192.0.2.1", infos)
    claims, leases, given = open_claims(database), {}, {}
    arrivals = [(demand.arrival, 1, demand) for demand in demands]
    ends = [(demand.arrival + demand.duration, 0, demand) for demand in demands]
    for _, arrives, demand in sorted(arrivals + ends, key=lambda event: event[:2]):
        if not arrives:
            claims.release(leases[demand.id])
            continue
        request = demand.request()
        lease = claims.claim(new_lease(request), request, policy)
        leases[demand.id] = lease.id
        given[demand.id] = sizes = {}
        for claim in lease.claims:
            sizes[claim.gpu_uuid] = sizes.get(claim.gpu_uuid, 0) + claim.memory_mb
    return given


def simulated(demands: list[Demand], policy: str) -> dict[int, dict[str, int]]:
    outcome = Simulation(demands, SITE, policy=policy).run()
    given: dict[int, dict[str, int]] = {}
    for _, uuid, number, change in outcome.occupancy:
        if change > 0:
            given.setdefault(number, {})[uuid] = change
    return given


@pytest.mark.parametrize("moments", [60, pytest.param(150, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("policy", policies.names())
def test_the_simulated_cloud_chooses_what_the_service_chooses(database, policy: str, moments: int):
    demands = history(7, moments)
    assert len(demands) > moments / 2
    assert simulated(demands, policy) == served(database, demands, policy)


def test_policies_see_as_many_recent_requests_as_in_a_service_with_defaults():
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    assert conf.gpgpums.request_mix == REQUEST_MIX
