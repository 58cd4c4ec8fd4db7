"""Tasks tied to their node: one run of one scheduler, and what it had allocated when."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from studies.openb.arrivals import arrivals
from studies.openb.cluster import Cluster
from studies.openb.fragmentation import typical
from studies.openb.schedulers import Scheduler
from studies.openb.sizes import THOUSANDTHS, Sizes
from studies.openb.trace import WHOLE, Node, Task

LOAD = 1.3
"""Arrivals ask for so many times what there is."""


@dataclass(frozen=True)
class Curve:
    """After each arrival: percent of all GPU thousandths asked for so far, and percent of the GPUs allocated."""

    asked: Sequence[float]
    allocated: Sequence[float]
    turned_away: int
    """Tasks that found no place."""

    def at(self, percent: int) -> float:
        """Percent of the GPUs allocated when the arrivals asked for about *percent* of their thousandths.

        The mean over the arrivals at which that rounds to *percent*, as it was done for the published results.
        """
        near = [
            allocated
            for asked, allocated in zip(self.asked, self.allocated, strict=True)
            if round(asked) == percent
        ]
        return sum(near) / len(near)


def run(
    nodes: Sequence[Node],
    tasks: Sequence[Task],
    scheduler: type[Scheduler],
    seed: int,
    sizes: Sizes = THOUSANDTHS,
) -> Curve:
    """Let the *tasks* arrive until they asked for `LOAD` times what there is.

    *seed* decides in which order they come and in which order the nodes stand, which is what decides between equals.
    """
    rng = random.Random(seed)
    coming = arrivals(tasks, thousandths(nodes), LOAD, rng)
    cluster = Cluster(rng.sample(nodes, len(nodes)), sizes)
    return place(scheduler(cluster, typical(tasks), rng), coming)


def thousandths(nodes: Iterable[Node]) -> int:
    """Of all GPUs of *nodes*."""
    return sum(node.gpus for node in nodes) * WHOLE


def place(chooser: Scheduler, coming: Iterable[Task]) -> Curve:
    """Offer each task a place, in order."""
    cluster = chooser.cluster
    asked, allocated, turned_away, total = [], [], 0, 0
    asked_unit, unit = thousandths(cluster.nodes) / 100, cluster.capacity / 100
    for task in coming:
        total += task.total_milli
        choice = chooser.choose(task)
        if choice is None:
            turned_away += 1
        else:
            cluster.place(task, *choice)
            chooser.placed(task, choice[0])
        asked.append(total / asked_unit)
        allocated.append(cluster.used / unit)
    return Curve(asked, allocated, turned_away)
