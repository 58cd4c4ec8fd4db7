# SPDX-License-Identifier: Apache-2.0
"""Runs with cloudified GPUs: CPU and memory of a task are on one node, its GPUs on any nodes, chosen by GPGPUMS.

GPU memory is in the unit of *sizes*: thousandths of any GPU, or MiB. The node of a task is the one with the least CPU
and memory left afterwards, as a cloud that does not consider GPUs would pack tasks. Policies that consider the host of
the consumer are given that node.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool import Pool
from gsaas.objects.gpu import EXCLUSIVE, SHARED, Gpu
from gsaas.objects.request import Request
from gsaas.sim.claims import PoolClaims
from studies.openb.arrivals import draw_arrivals
from studies.openb.local import LOAD, AllocationCurve, total_milli
from studies.openb.sizes import THOUSANDTHS, ShareSizes
from studies.openb.trace import WHOLE, OpenbNode, Task


@dataclass(frozen=True)
class CloudifiedOutcome:
    """The result of one run with one policy."""

    curve: AllocationCurve
    cgpus: int
    """The number of cGPUs given."""
    remote: int
    """How many of them were on another node than their task."""
    remote_milli: Counter[str]
    """Node -> thousandths of GPUs of other nodes that its tasks use."""
    lent_milli: Counter[str]
    """Node -> thousandths of its GPUs that tasks on other nodes use."""
    free: tuple[int, ...]
    """Thousandths free on each GPU at the end, sorted."""
    free_percent: float
    """Percent of all GPU memory that is free at the end."""
    free_cpu: int
    """Thousandths of cores free at the end on the node with the most of them."""


class NodeResources:
    """Free CPU and memory of the nodes, by their index in *nodes*."""

    def __init__(self, nodes: Sequence[OpenbNode]) -> None:
        self.names = [node.name for node in nodes]
        self._cpu = np.array([node.cpu for node in nodes])
        self._memory = np.array([node.memory for node in nodes])
        self._most_cpu = int(self._cpu.max())
        self._most_memory = int(self._memory.max())

    def best_fit(self, task: Task) -> int | None:
        """Return the node with the least CPU and memory left after *task*; None if no node has room."""
        fitting = np.flatnonzero((self._cpu >= task.cpu) & (self._memory >= task.memory))
        if not fitting.size:
            return None
        cpu, memory = self._cpu[fitting] / self._most_cpu, self._memory[fitting] / self._most_memory
        return int(fitting[(cpu + memory).argmin()])

    def claim(self, task: Task, node: int) -> None:
        """Claim the CPU and memory of *task* on *node*."""
        self._cpu[node] -= task.cpu
        self._memory[node] -= task.memory

    @property
    def most_free_cpu(self) -> int:
        """Thousandths of cores free on the node with the most of them."""
        return int(self._cpu.max())


def run(
    nodes: Sequence[OpenbNode],
    tasks: Sequence[Task],
    policy: Policy,
    seed: int,
    sizes: ShareSizes = THOUSANDTHS,
) -> CloudifiedOutcome:
    """Let the *tasks* arrive in the order of `local.run` with the same *seed*; *policy* chooses their GPUs.

    Raises `ValueError` if a task allows several models, but not all: no request of GSaaS can say that.
    """
    rng = random.Random(seed)
    asked_unit = total_milli(nodes) / 100
    unit = sum(node.gpus * sizes.of_gpu(node) for node in nodes) / 100
    coming = draw_arrivals(tasks, total_milli(nodes), LOAD, rng)
    nodes = rng.sample(nodes, len(nodes))
    resources = NodeResources(nodes)
    pool = Pool(_gpus(nodes, sizes), [node.name for node in nodes], _request_mix(tasks, sizes))
    claims = PoolClaims(pool)
    asked, allocated = [], []
    total = used = rejected = cgpus = remote = 0
    remote_milli: Counter[str] = Counter()
    lent_milli: Counter[str] = Counter()
    for task in coming:
        total += task.total_milli
        node = resources.best_fit(task)
        name = "" if node is None else resources.names[node]
        hosts = None if node is None else _claim_gpus(claims, policy, task, name, sizes)
        if node is None or hosts is None:
            rejected += 1
        else:
            resources.claim(task, node)
            cgpus += task.gpus
            for host, size in hosts:
                used += size
                if host != name:
                    remote += 1
                    remote_milli[name] += task.milli
                    lent_milli[host] += task.milli
        asked.append(total / asked_unit)
        allocated.append(used / unit)
    return CloudifiedOutcome(
        AllocationCurve(asked, allocated, rejected),
        cgpus,
        remote,
        remote_milli,
        lent_milli,
        tuple(sorted(gpu.free_mb * WHOLE // gpu.memory_mb for gpu in pool)),
        sum(gpu.free_mb for gpu in pool) / unit,
        resources.most_free_cpu,
    )


def _gpus(nodes: Sequence[OpenbNode], sizes: ShareSizes) -> list[Gpu]:
    return [
        Gpu(f"{node.name}-{index}", node.name, index, sizes.of_gpu(node), model=node.model)
        for node in nodes
        for index in range(node.gpus)
    ]


def _request_mix(tasks: Sequence[Task], sizes: ShareSizes) -> list[tuple[Request, float]]:
    """Return the requests to expect, each for one cGPU, with their frequencies: for policies that consider them."""
    counts: Counter[int] = Counter()
    for task in tasks:
        counts[task.milli] += task.gpus
    return [
        (
            Request(1, SHARED, sizes.of_share(milli)) if milli < WHOLE else Request(1),
            count / counts.total(),
        )
        for milli, count in sorted(counts.items())
        if count
    ]


def _claim_gpus(
    claims: PoolClaims, policy: Policy, task: Task, node: str, sizes: ShareSizes
) -> list[tuple[str, int]] | None:
    """Claim the GPUs of *task*; return host and size of each, or None if the pool has no room."""
    if not task.gpus:
        return []
    shared = task.milli < WHOLE
    if len(task.models) > 1:
        raise ValueError(f"no request allows the models {', '.join(task.models)} and no others")
    request = Request(
        task.gpus,
        SHARED if shared else EXCLUSIVE,
        sizes.of_share(task.milli) if shared else None,
        gpu_model=task.models[0] if task.models else None,
        consumer_host=node,
    )
    placement = claims.pool.place(request, policy)
    if placement is None:
        return None
    claims.claim(placement, exclusive=not shared)
    return [(claims.pool[share.gpu_uuid].host, share.memory_mb) for share in placement.shares]
