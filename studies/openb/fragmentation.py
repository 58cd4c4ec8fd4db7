"""How much of what is free is of no use to the tasks that are likely to come.

Free thousandths of a GPU are a fragment, for one kind of task, if that task cannot use them: because its node lacks
CPU, because the node lacks GPUs that are free enough, or because just this GPU is too full. The fragmentation of a
node is the mean over the kinds of tasks, each weighted with how often it comes (ATC 2023, section 4). Tasks without a
GPU can use none, so all that is free is a fragment to them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

from studies.openb.trace import Task

POPULAR = 0.95
"""The most frequent kinds of tasks that make up this part of the workload stand for all of it."""

Kind = tuple[int, int, int]
"""CPU thousandths, number of GPUs, thousandths of each."""
Mix = Sequence[tuple[Kind, float]]
"""Kinds of tasks, and which part of all each is."""


def typical(tasks: Iterable[Task], popular: float = POPULAR) -> Mix:
    """Return the most frequent kinds of *tasks* and how often each comes; the shares add up to 1."""
    counts = Counter((task.cpu, task.gpus, task.milli) for task in tasks)
    ranked = sorted(
        counts.items(), key=lambda item: (item[1], item[0][0], item[0][2], item[0][1]), reverse=True
    )
    enough = popular * counts.total()
    kept, covered = [], 0
    for kind, count in ranked:
        if covered >= enough:
            break
        kept.append((kind, count))
        covered += count
    return [(kind, count / covered) for kind, count in kept]


class Fragmentation:
    """The measure for one mix of tasks, as `typical` returns it."""

    def __init__(self, mix: Iterable[tuple[Kind, float]]) -> None:
        self._with_gpus = sorted((kind, share) for kind, share in mix if kind[1])
        self._cpus = [kind[0] for kind, _ in self._with_gpus]
        self._usable = lru_cache(maxsize=None)(self._usable_by_kind)

    def of(self, cpu: int, gpus: tuple[int, ...]) -> float:
        """GPU thousandths that are fragments on a node with that much free CPU and free *gpus*, sorted."""
        reached = bisect_right(self._cpus, cpu)
        return sum(gpus) - self._usable(gpus)[reached]

    def _usable_by_kind(self, gpus: tuple[int, ...]) -> list[float]:
        """Weighted thousandths of *gpus* that are of use to the first *n* kinds by CPU, for each *n*."""
        useful = []
        for (_, count, milli), share in self._with_gpus:
            wide = [free for free in gpus if free >= milli]
            useful.append(share * sum(wide) if len(wide) >= count else 0.0)
        return [0.0, *accumulate(useful)]
