# SPDX-License-Identifier: Apache-2.0
"""Runs with cloudified GPUs: CPU and memory of a task are on one node, its GPUs on any nodes, chosen by GPGPUMS.

GPU memory is in the unit of *sizes*: thousandths of any GPU, or MiB. The node of a task is chosen in one of two ways:

    by CPU   the least CPU and memory left afterwards, as a cloud that does not consider GPUs packs tasks
    by FGD   the node that FGD chooses for a task that is tied to it; if no node has all that the task needs, the one
             that FGD chooses for a task without GPUs

Policies that consider the host of the consumer are given that node.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool import Ordering, Pool
from gsaas.objects.gpu import EXCLUSIVE, SHARED, Gpu
from gsaas.objects.request import Request
from gsaas.sim.claims import PoolClaims
from studies.openb.arrivals import draw_arrivals
from studies.openb.cluster import OpenbCluster
from studies.openb.costs import FREE, RemoteCosts, Use
from studies.openb.fragmentation import TaskMix, typical_mix
from studies.openb.local import LOAD, AllocationCurve, total_milli
from studies.openb.schedulers import FgdScheduler
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
    uses: tuple[Use, ...]
    """The GPUs of each task that has any."""
    free: tuple[int, ...]
    """Thousandths free on each GPU at the end, sorted."""
    free_percent: float
    """Percent of all GPU memory that is free at the end."""
    free_cpu: int
    """Thousandths of cores free at the end on the node with the most of them."""


class NodeResources:
    """Free CPU and memory of the nodes, by their index in *nodes*."""

    def __init__(self, nodes: Sequence[OpenbNode], costs: RemoteCosts = FREE) -> None:
        self.names = [node.name for node in nodes]
        self._index = {name: index for index, name in enumerate(self.names)}
        self._costs = costs
        # NumPy is fast for all nodes at once, and slow for a single one: each array has a view for NumPy.
        self._cpu_of = array("q", [node.cpu for node in nodes])
        self._memory_of = array("q", [node.memory for node in nodes])
        self._cpu = np.frombuffer(self._cpu_of, np.int64)
        self._memory = np.frombuffer(self._memory_of, np.int64)
        self.exhausted: set[str] = set()
        """Nodes that can lend no GPU any more: no task ends."""
        self._most_cpu = int(self._cpu.max())
        self._most_memory = int(self._memory.max())

    def choose(self, task: Task) -> int | None:
        """Return the node with the least CPU and memory left after *task*; None if no node has room."""
        fitting = np.flatnonzero((self._cpu >= task.cpu) & (self._memory >= task.memory))
        if not fitting.size:
            return None
        cpu, memory = self._cpu[fitting] / self._most_cpu, self._memory[fitting] / self._most_memory
        return int(fitting[(cpu + memory).argmin()])

    def claim(self, task: Task, node: int, gpus: Iterable[Gpu]) -> None:
        """Claim the CPU and memory of *task* on *node*, and those of a daemon for each of its remote *gpus*."""
        self._cpu[node] -= task.cpu
        self._memory[node] -= task.memory
        changed = {self.names[node]}
        for gpu in gpus:
            if gpu.host != self.names[node]:
                self._cpu_of[self._index[gpu.host]] -= self._costs.cpu
                self._memory_of[self._index[gpu.host]] -= self._costs.memory
                changed.add(gpu.host)
        self.exhausted.update(host for host in changed if not self.can_lend(host, 1))

    def can_lend(self, host: str, daemons: int) -> bool:
        """Return whether the node *host* has CPU and memory for so many more daemons."""
        node = self._index[host]
        return (
            self._cpu_of[node] >= daemons * self._costs.cpu
            and self._memory_of[node] >= daemons * self._costs.memory
        )

    @property
    def most_free_cpu(self) -> int:
        """Thousandths of cores free on the node with the most of them."""
        return int(self._cpu.max())


class FgdNodes(NodeResources):
    """The same, with the node of a task chosen by FGD."""

    def __init__(
        self,
        nodes: Sequence[OpenbNode],
        mix: TaskMix,
        sizes: ShareSizes,
        costs: RemoteCosts = FREE,
    ) -> None:
        super().__init__(nodes, costs)
        self._cluster = OpenbCluster(nodes, sizes)
        self._cluster.free_cpu, self._cluster.free_memory = self._cpu, self._memory
        self._fgd = FgdScheduler(self._cluster, mix, random.Random(0))

    def choose(self, task: Task) -> int | None:
        choice = self._fgd.choose(task) or self._fgd.choose(Task(task.cpu, task.memory, 0, 0))
        return None if choice is None else choice[0]

    def claim(self, task: Task, node: int, gpus: Iterable[Gpu]) -> None:
        gpus = list(gpus)
        super().claim(task, node, gpus)
        self._fgd.task_placed(task, node)
        for gpu in gpus:
            lender = self._index[gpu.host]
            need = self._cluster.milli_on(task.milli, lender)
            self._cluster.take(lender, [gpu.device_index], need)
            self._fgd.task_placed(task, lender)


class LendersOnly:
    """The order of *policy* without GPUs of nodes that have no CPU or memory left for one more daemon."""

    name: ClassVar[str] = "lenders only"

    def __init__(self, policy: Policy, nodes: NodeResources) -> None:
        self._policy, self._nodes = policy, nodes
        self._begun: Counter[str] = Counter()
        """Node -> daemons for the cGPUs of the present request that are placed already."""
        self._last: str | None = None

    def begin(self) -> None:
        """Begin a request."""
        self._begun.clear()
        self._last = None

    def order(self, candidates: Candidates, request: Request) -> Iterator[Gpu]:
        # The pool takes the first GPU that it may, so the last one of the call before was taken.
        if self._last is not None:
            self._begun[self._last] += 1
        exhausted, consumer_host = self._nodes.exhausted, request.consumer_host
        for gpu in self._policy.order(candidates, request):
            host = gpu.host
            if host == consumer_host:
                self._last = None
                yield gpu
            elif host not in exhausted and self._nodes.can_lend(host, self._begun[host] + 1):
                self._last = host
                yield gpu


def run(
    nodes: Sequence[OpenbNode],
    tasks: Sequence[Task],
    policy: Policy,
    seed: int,
    sizes: ShareSizes = THOUSANDTHS,
    costs: RemoteCosts = FREE,
    *,
    by_fgd: bool = False,
) -> CloudifiedOutcome:
    """Let the *tasks* arrive in the order of `local.run` with the same *seed*; *policy* chooses their GPUs.

    *costs* are what a remote GPU takes of its node; *by_fgd*, whether FGD chooses the node of each task.
    Raises `ValueError` if a task allows several models, but not all: no request of GSaaS can say that.
    """
    rng = random.Random(seed)
    asked_unit = total_milli(nodes) / 100
    unit = sum(node.gpus * sizes.of_gpu(node) for node in nodes) / 100
    coming = draw_arrivals(tasks, total_milli(nodes), LOAD, rng)
    nodes = rng.sample(nodes, len(nodes))
    resources = (
        FgdNodes(nodes, typical_mix(tasks), sizes, costs) if by_fgd else NodeResources(nodes, costs)
    )
    lenders = LendersOnly(policy, resources)
    pool = Pool(_gpus(nodes, sizes), [node.name for node in nodes], _request_mix(tasks, sizes))
    claims = PoolClaims(pool)
    asked, allocated = [], []
    total = used = rejected = cgpus = remote = 0
    remote_milli: Counter[str] = Counter()
    lent_milli: Counter[str] = Counter()
    uses: list[Use] = []
    for task in coming:
        total += task.total_milli
        node = resources.choose(task)
        name = "" if node is None else resources.names[node]
        lenders.begin()
        ordering = policy if costs == FREE else lenders
        given = None if node is None else _claim_gpus(claims, ordering, task, name, sizes)
        if node is None or given is None:
            rejected += 1
        else:
            resources.claim(task, node, [gpu for gpu, _ in given])
            cgpus += task.gpus
            if given:
                uses.append(Use(name, tuple(gpu.host for gpu, _ in given), task.milli))
            for gpu, size in given:
                used += size
                if gpu.host != name:
                    remote += 1
                    remote_milli[name] += task.milli
                    lent_milli[gpu.host] += task.milli
        asked.append(total / asked_unit)
        allocated.append(used / unit)
    return CloudifiedOutcome(
        AllocationCurve(asked, allocated, rejected),
        cgpus,
        remote,
        remote_milli,
        lent_milli,
        tuple(uses),
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
    claims: PoolClaims, policy: Ordering, task: Task, node: str, sizes: ShareSizes
) -> list[tuple[Gpu, int]] | None:
    """Claim the GPUs of *task*; return each with the size of its share, or None if the pool has no room."""
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
    return [(claims.pool[share.gpu_uuid], share.memory_mb) for share in placement.shares]
