# SPDX-License-Identifier: Apache-2.0
"""Runs with tasks tied to one node: one scheduler each, and how much it allocates over time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from studies.openb.arrivals import draw_arrivals
from studies.openb.cluster import OpenbCluster
from studies.openb.fragmentation import typical_mix
from studies.openb.schedulers import Scheduler
from studies.openb.sizes import THOUSANDTHS, ShareSizes
from studies.openb.trace import WHOLE, OpenbNode, Task

LOAD = 1.3
"""How many times the capacity of the GPUs arrivals ask for, in the published runs."""


@dataclass(frozen=True)
class AllocationCurve:
    """After each arrival: percent of all GPU thousandths asked for so far, and percent of all GPUs allocated."""

    asked: Sequence[float]
    allocated: Sequence[float]
    rejected: int
    """The number of tasks that fitted nowhere."""

    def allocated_at(self, percent: int) -> float:
        """Return the percentage allocated when the arrivals asked for about *percent* percent of all thousandths.

        This is the mean over the arrivals at which that rounds to *percent*, as in the published results. Where there
        is none, because a single task asks for more than a percent of a small cluster, it is that after the last
        arrival before.
        """
        near = [
            allocated
            for asked, allocated in zip(self.asked, self.allocated, strict=True)
            if round(asked) == percent
        ]
        if near:
            return sum(near) / len(near)
        before = sum(asked < percent for asked in self.asked)
        return self.allocated[before - 1] if before else 0.0


def run(
    nodes: Sequence[OpenbNode],
    tasks: Sequence[Task],
    scheduler: type[Scheduler],
    seed: int,
    sizes: ShareSizes = THOUSANDTHS,
    load: float = LOAD,
) -> AllocationCurve:
    """Let the *tasks* arrive until they have asked for *load* times the capacity; return what is allocated.

    *seed* decides the order of the tasks, and the order of the nodes, the first of which is taken among equals.
    """
    rng = random.Random(seed)
    coming = draw_arrivals(tasks, total_milli(nodes), load, rng)
    cluster = OpenbCluster(rng.sample(nodes, len(nodes)), sizes)
    return place_all(scheduler(cluster, typical_mix(tasks), rng), coming)


def total_milli(nodes: Iterable[OpenbNode]) -> int:
    """Return the GPU thousandths of all *nodes*."""
    return sum(node.gpus for node in nodes) * WHOLE


def place_all(scheduler: Scheduler, coming: Iterable[Task]) -> AllocationCurve:
    """Place each of the tasks, in order, if *scheduler* finds a node for it; return what is allocated."""
    cluster = scheduler.cluster
    asked, allocated, rejected, total = [], [], 0, 0
    # One percent of what can be asked for, and of what can be allocated.
    asked_unit, unit = total_milli(cluster.nodes) / 100, cluster.capacity / 100
    for task in coming:
        total += task.total_milli
        choice = scheduler.choose(task)
        if choice is None:
            rejected += 1
        else:
            cluster.place(task, *choice)
            scheduler.task_placed(task, choice[0])
        asked.append(total / asked_unit)
        allocated.append(cluster.used / unit)
    return AllocationCurve(asked, allocated, rejected)
