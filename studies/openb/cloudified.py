"""The same tasks with cloudified GPUs: CPU and memory on one node, GPUs from anywhere, as GPGPUMS would give them.

GPU memory is in the unit of `sizes`: thousandths of any GPU, or MiB. The node is the one that has least CPU and memory
left afterwards, as a cloud that knows nothing of GPUs would pack them; a policy that asks for the task's own host is
told that node.
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
from studies.openb.arrivals import arrivals
from studies.openb.local import LOAD, Curve, thousandths
from studies.openb.sizes import THOUSANDTHS, Sizes
from studies.openb.trace import WHOLE, Node, Task


@dataclass(frozen=True)
class Outcome:
    """What one policy made of the arrivals."""

    curve: Curve
    cgpus: int
    remote: int
    """Of the cGPUs, those on another node than their task."""
    remote_milli: Counter[str]
    """Node -> thousandths of other nodes' GPUs that tasks on it use."""
    lent_milli: Counter[str]
    """Node -> thousandths of its GPUs that tasks elsewhere use."""
    free: tuple[int, ...]
    """Thousandths free on each GPU at the end, sorted."""
    free_percent: float
    """Of all GPU memory, what is free at the end."""
    free_cpu: int
    """The most CPU free on any node at the end."""


class Machines:
    """CPU and memory of the nodes, in one order for good."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.names = [node.name for node in nodes]
        self._cpu = np.array([node.cpu for node in nodes])
        self._memory = np.array([node.memory for node in nodes])
        self._most_cpu = int(self._cpu.max())
        self._most_memory = int(self._memory.max())

    def best_fit(self, task: Task) -> int | None:
        """Return the node with least left after *task*; None if it fits on none."""
        fitting = np.flatnonzero((self._cpu >= task.cpu) & (self._memory >= task.memory))
        if not fitting.size:
            return None
        cpu, memory = self._cpu[fitting] / self._most_cpu, self._memory[fitting] / self._most_memory
        return int(fitting[(cpu + memory).argmin()])

    def take(self, task: Task, node: int) -> None:
        self._cpu[node] -= task.cpu
        self._memory[node] -= task.memory

    @property
    def most_free_cpu(self) -> int:
        return int(self._cpu.max())


def run(
    nodes: Sequence[Node],
    tasks: Sequence[Task],
    policy: Policy,
    seed: int,
    sizes: Sizes = THOUSANDTHS,
) -> Outcome:
    """Let the *tasks* arrive as `local.run` does with the same *seed*, and *policy* choose their GPUs."""
    rng = random.Random(seed)
    asked_unit = thousandths(nodes) / 100
    unit = sum(node.gpus * sizes.of_gpu(node) for node in nodes) / 100
    coming = arrivals(tasks, thousandths(nodes), LOAD, rng)
    nodes = rng.sample(nodes, len(nodes))
    machines = Machines(nodes)
    pool = Pool(_gpus(nodes, sizes), [node.name for node in nodes], _mix(tasks, sizes))
    asked, allocated = [], []
    total = used = turned_away = cgpus = remote = 0
    borrowed: Counter[str] = Counter()
    lent: Counter[str] = Counter()
    for task in coming:
        total += task.total_milli
        node = machines.best_fit(task)
        hosts = None if node is None else _claim(pool, policy, task, machines.names[node], sizes)
        if hosts is None:
            turned_away += 1
        else:
            machines.take(task, node)
            cgpus += task.gpus
            for host, size in hosts:
                used += size
                if host != machines.names[node]:
                    remote += 1
                    borrowed[machines.names[node]] += task.milli
                    lent[host] += task.milli
        asked.append(total / asked_unit)
        allocated.append(used / unit)
    return Outcome(
        Curve(asked, allocated, turned_away),
        cgpus,
        remote,
        borrowed,
        lent,
        tuple(sorted(gpu.free_mb * WHOLE // gpu.memory_mb for gpu in pool)),
        sum(gpu.free_mb for gpu in pool) / unit,
        machines.most_free_cpu,
    )


def _gpus(nodes: Sequence[Node], sizes: Sizes) -> list[Gpu]:
    return [
        Gpu(f"{node.name}-{index}", node.name, index, sizes.of_gpu(node), model=node.model)
        for node in nodes
        for index in range(node.gpus)
    ]


def _mix(tasks: Sequence[Task], sizes: Sizes) -> list[tuple[Request, float]]:
    """What is asked for, one cGPU at a time: what policies that expect the usual are told."""
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


def _claim(
    pool: Pool, policy: Policy, task: Task, node: str, sizes: Sizes
) -> list[tuple[str, int]] | None:
    """Claim the GPUs of *task*; return host and size of each, or None if they are not to be had."""
    if not task.gpus:
        return []
    shared = task.milli < WHOLE
    request = Request(
        task.gpus,
        SHARED if shared else EXCLUSIVE,
        sizes.of_share(task.milli) if shared else None,
        consumer_host=node,
    )
    placement = pool.place(request, policy)
    if placement is None:
        return None
    found = []
    for share in placement.shares:
        gpu = pool.get(share.gpu_uuid)
        pool.put(gpu.claim(share.memory_mb, exclusive=not shared, generation=gpu.generation + 1))
        found.append((gpu.host, share.memory_mb))
    return found
