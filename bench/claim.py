# SPDX-License-Identifier: Apache-2.0
"""What it costs to claim a GPU and release it: 16 to 16,384 GPUs, most of them free or busy.

Measured in the pool alone (the core), and through the whole API with its database (SQLite, the WSGI application called
in this process): `POST /v1/leases`, `DELETE /v1/leases/{id}`, and the release of the claim, which is the engine's part.
All sizes take turns in every round, so that a slow moment of the machine affects all of them; medians are compared.
"""

from __future__ import annotations

import gc
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import select

from bench.report import machine, median
from gsaas.api import auth
from gsaas.db import models
from gsaas.gpgpums import policies
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool import Pool
from gsaas.objects.gpu import Gpu
from gsaas.objects.placement import Placement
from gsaas.objects.request import Request
from tests.api.world import World, token

BUSY = (0.0, 0.9)
"""Fractions of the GPUs that have no free memory: the first ones in pool order, which is the worst case."""

MEMORY_MB = 8192
CGPU_MB = 1024
REQUEST = Request(1, "shared", CGPU_MB)

Action = Callable[[], object]


@dataclass(frozen=True)
class Size:
    """The numbers of GPUs that are measured, and how often each is."""

    gpus: tuple[int, ...] = (16, 256, 1024, 16384)
    api_many: int = 1024
    """What the API's time with the fewest GPUs is compared with."""
    core_rounds: int = 60
    core_batch: int = 50
    different_rounds: int = 10
    api_rounds: int = 120


QUICK = Size(
    gpus=(16, 64), api_many=64, core_rounds=3, core_batch=20, different_rounds=3, api_rounds=3
)
"""One call of some microseconds would say nothing."""


def run(quick: bool = False) -> dict[str, Any]:
    """Return median times of one claim with its release: microseconds in the core, milliseconds through the API.

    *quick* has few GPUs.
    """
    size = QUICK if quick else Size()
    core = measure_core(size)
    different = measure_different(size)
    api = measure_api(size)
    rows = [
        {"core": policy, "gpus": size, "busy": busy, "median_us": taken * 1e6}
        for (policy, busy, size), taken in core.items()
    ]
    rows += [
        {"core": policy, "gpus": size, "busy": "all different", "median_us": taken * 1e6}
        for (policy, size), taken in different.items()
    ]
    rows += [
        {"api": "least-load-fit", "gpus": size, "busy": busy, "median_ms": taken * 1e3}
        for (busy, size), taken in api.items()
    ]
    few, many, most = size.gpus[0], size.api_many, size.gpus[-1]
    reach = [
        {
            "what": f"core, {policy}, {busy:.0%} busy: {most:,} GPUs against {few}",
            "value": core[policy, busy, most] / core[policy, busy, few],
            "bound": "<= 2.0",
        }
        for policy, busy in itertools.product(policies.names(), BUSY)
    ]
    reach += [
        {
            "what": f"API, {busy:.0%} busy: {many:,} GPUs against {few}",
            "value": api[busy, many] / api[busy, few],
            "bound": "<= 1.2",
        }
        for busy in BUSY
    ]
    return {"bench": "claim", "machine": machine(), "rows": rows, "reach": reach}


# The core


def measure_core(size: Size) -> dict[tuple[str, float, int], float]:
    """Return the seconds by (policy, fraction of busy GPUs, number of GPUs)."""
    actions = {
        (name, busy, gpus): claim_in_core(pool(gpus, busy), policies.load(name))
        for name, busy, gpus in itertools.product(policies.names(), BUSY, size.gpus)
    }
    # It waits for nothing: what other processes do meanwhile is not counted.
    return medians(actions, size.core_rounds, size.core_batch, time.thread_time)


def measure_different(size: Size) -> dict[tuple[str, int], float]:
    """Return the seconds by (policy, number of GPUs), with all GPUs different."""
    actions = {
        (name, gpus): claim_in_core(all_different(gpus), policies.load(name))
        for name, gpus in itertools.product(policies.names(), size.gpus)
    }
    return medians(actions, size.different_rounds, 2, time.thread_time)


def pool(size: int, busy: float) -> Pool:
    """Return a pool of *size* GPUs, the fraction *busy* of which have no free memory."""
    gpus = all_gpus(size, busy)
    return Pool(gpus, {gpu.host for gpu in gpus})


@cache
def all_gpus(size: int, busy: float) -> list[Gpu]:
    """Return the GPUs of `pool`, in pool order."""
    hosts = [f"gpu{number:05}" for number in range(size // 8)]
    idle = [
        Gpu(f"GPU-{host}-{index}", host, index, MEMORY_MB) for host in hosts for index in range(8)
    ]
    taken = int(size * busy)
    full = [gpu.with_(used_mb=MEMORY_MB, leases=1) for gpu in idle[:taken]]
    return [*full, *idle[taken:]]


def all_different(size: int) -> Pool:
    """Return a pool of *size* GPUs with different free memory, as far as their MiB suffice."""
    gpus = all_gpus(size, 0.0)
    return Pool(
        [
            gpu.with_(used_mb=slot % (MEMORY_MB - CGPU_MB), leases=1)
            for slot, gpu in enumerate(gpus)
        ],
        {gpu.host for gpu in gpus},
    )


def claim_in_core(pool: Pool, policy: Policy) -> Action:
    """Return the action that claims one cGPU of *pool* and releases it."""

    def action() -> None:
        placement = pool.propose(REQUEST, policy)
        assert isinstance(placement, Placement)
        for uuid, size in placement.memory_by_gpu().items():
            gpu = pool.get(uuid)
            assert gpu is not None
            pool.put(gpu.claim(size, exclusive=False, generation=gpu.generation + 1))
        for uuid, size in placement.memory_by_gpu().items():
            gpu = pool.get(uuid)
            assert gpu is not None
            pool.put(gpu.release(size, generation=gpu.generation + 1))

    return action


# The API


def measure_api(size: Size) -> dict[tuple[float, int], float]:
    """Return the seconds by (fraction of busy GPUs, number of GPUs)."""
    with tempfile.TemporaryDirectory(prefix="gsaas-bench-") as folder:
        worlds = {
            (busy, gpus): build_world(Path(folder, f"{gpus}-{busy}"), gpus, busy)
            for busy, gpus in itertools.product(BUSY, size.gpus)
        }
        actions = {key: claim_through_api(world) for key, world in worlds.items()}
        found = medians(actions, size.api_rounds, batch=1)
        for world in worlds.values():
            world.database.close()
    return found


def build_world(folder: Path, size: int, busy: float) -> World:
    """Return the API on a new database with *size* GPUs, the fraction *busy* of which have no free memory."""
    folder.mkdir()
    world = World.build(folder, hosts=size // 4)
    with world.database.write() as session:
        in_pool_order = (models.GpuRow.host_name, models.GpuRow.device_index)
        taken = select(models.GpuRow).order_by(*in_pool_order).limit(int(size * busy))
        for gpu in session.scalars(taken):
            gpu.used_mb = MEMORY_MB
    return world


def claim_through_api(world: World) -> Action:
    """Return the action that creates a lease with one cGPU, releases it, and returns its claim."""
    client = world.app.test_client()
    headers = {auth.HEADER: token("member")}
    cgpus = {
        "count": REQUEST.count,
        "mode": REQUEST.mode,
        "memory_mb": REQUEST.memory_mb,
    }
    body = json.dumps({"lease": {"cgpus": cgpus, "server": {}}})

    def action() -> None:
        made = client.post(
            "/v1/leases", data=body, content_type="application/json", headers=headers
        )
        lease_id = made.get_json()["lease"]["id"]
        client.delete(f"/v1/leases/{lease_id}", headers=headers)
        world.claims.release(lease_id)

    return action


# The clock


def medians(
    actions: dict[Any, Action],
    rounds: int,
    batch: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Any, float]:
    """Return the seconds of *clock* that each action takes: the median over *rounds* of the mean over *batch* calls."""
    taken: dict[Any, list[float]] = {key: [] for key in actions}
    with garbage_collector_off():
        for turn in range(rounds + 1):
            for key, action in actions.items():
                begun = clock()
                for _ in range(batch):
                    action()
                if turn:  # the first round fills caches and indexes
                    taken[key].append((clock() - begun) / batch)
    return {key: median(times) for key, times in taken.items()}


@contextmanager
def garbage_collector_off() -> Iterator[None]:
    """Switch the garbage collector off, which would stop one action at random."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


if __name__ == "__main__":
    print(json.dumps(run()))
