# SPDX-License-Identifier: Apache-2.0
"""Fragmentation: how much free GPU capacity is useless to the tasks that are expected.

Free thousandths of a GPU are a fragment for one kind of task if that task cannot use them: because the node lacks CPU,
because the node lacks GPUs that are free enough, because this one GPU is too full, or because its model is none of
those that the task allows. The fragmentation of a node is
the mean over the kinds of tasks, weighted by their frequency (ATC 2023, section 4). For tasks without a GPU all free
thousandths are a fragment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from studies.openb.trace import Task

COVERAGE = 0.95
"""The most frequent kinds of tasks that make up this fraction of the workload represent all of it."""


class TaskKind(NamedTuple):
    """What makes tasks alike: thousandths of cores, number of GPUs, thousandths of each, and models that they allow."""

    cpu: int
    gpus: int
    milli: int
    models: tuple[str, ...] = ()


TaskMix = Sequence[tuple[TaskKind, float]]
"""Kinds of tasks, and the fraction of all tasks that each is."""


def typical_mix(tasks: Iterable[Task], coverage: float = COVERAGE) -> TaskMix:
    """Return the most frequent kinds of *tasks* and their frequencies, which add up to 1."""
    counts = Counter(TaskKind(task.cpu, task.gpus, task.milli, task.models) for task in tasks)
    ranked = sorted(
        counts.items(),
        key=lambda item: (item[1], item[0].cpu, item[0].milli, item[0].gpus, item[0].models),
        reverse=True,
    )
    enough = coverage * counts.total()
    kept, covered = [], 0
    for kind, count in ranked:
        if covered >= enough:
            break
        kept.append((kind, count))
        covered += count
    return [(kind, count / covered) for kind, count in kept]


class Fragmentation:
    """The fragmentation of nodes for one mix of tasks, as `typical_mix` returns it.

    *model* is the model of the nodes' GPUs: of no use to the kinds of tasks that do not allow it. None stands for GPUs
    that every task allows.
    """

    def __init__(self, mix: Iterable[tuple[TaskKind, float]], model: str | None = None) -> None:
        self._with_gpus = sorted(
            (kind, share)
            for kind, share in mix
            if kind.gpus and (model is None or not kind.models or model in kind.models)
        )
        self._cpus = [kind.cpu for kind, _ in self._with_gpus]
        # Many nodes have equally free GPUs, so most calls are answered from the cache.
        self._usable = lru_cache(maxsize=None)(self._usable_by_kind)

    def of_node(self, cpu: int, gpus: tuple[int, ...]) -> float:
        """Return the GPU thousandths that are fragments on a node.

        *cpu* are its free thousandths of cores, *gpus* the free thousandths of each of its GPUs, sorted.
        """
        reached = bisect_right(self._cpus, cpu)  # kinds of tasks for which the node has enough CPU
        return sum(gpus) - self._usable(gpus)[reached]

    def _usable_by_kind(self, gpus: tuple[int, ...]) -> list[float]:
        """Return, for each *n*, the weighted thousandths of *gpus* that the first *n* kinds, sorted by CPU, can use."""
        usable = []
        for (_, count, milli, _), share in self._with_gpus:
            large_enough = [free for free in gpus if free >= milli]
            usable.append(share * sum(large_enough) if len(large_enough) >= count else 0.0)
        return [0.0, *accumulate(usable)]
