"""Schedulers that know nodes: a task runs where its GPUs are. One function each, from scores to a node and its GPUs.

Each node that has room gets a whole number from 0 to 100; the best one is taken, and of equals the first. So it is done
by the simulator whose results are to be met (ATC 2023, section 6; the arithmetic, with its rounding, is that of
the plug-ins published with the paper):

    Random      any node, any GPU
    DotProd     the smallest product of what is free and what is asked for (after Tetris, SIGCOMM 2014)
    Clustering  nodes that already hold tasks of the same kind, the fullest first
    Packing     GPUs in use before idle ones on a node in use, and those before idle nodes
    BestFit     least CPU and GPU left over
    FGD         least growth of fragmentation
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from studies.openb.cluster import MOST_GPUS, NOT_HERE, Cluster
from studies.openb.fragmentation import Fragmentation, Mix
from studies.openb.trace import WHOLE, Task

BEST = 100
"""The highest score."""
LARGEST_CPU = 128_000
"""Thousandths of cores of the largest node, to which scores are scaled."""
LARGEST_GPU = MOST_GPUS * WHOLE


class Scheduler(ABC):
    """Chooses for one cluster, which it sees as the tasks leave it, with a *mix* of tasks to expect.

    *rng* is for those that leave it to chance.
    """

    name: str

    def __init__(self, cluster: Cluster, mix: Mix, rng: random.Random) -> None:
        self.cluster = cluster
        self.mix = mix
        self.rng = rng

    def choose(self, task: Task) -> tuple[int, Sequence[int]] | None:
        """Return a node with room for *task* and the GPUs to use there; None if there is none."""
        fitting = np.flatnonzero(self.cluster.fits(task))
        if not fitting.size:
            return None
        node = int(fitting[self.scores(task, fitting).argmax()])
        return node, self.gpus(task, node)

    @abstractmethod
    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        """Return a score for each of the nodes *fitting*."""

    def gpus(self, task: Task, node: int) -> Sequence[int]:
        """The GPUs of *node* for *task*: idle ones for whole GPUs, the tightest for a share."""
        if task.gpus == 1 and task.milli < WHOLE:
            return [self.cluster.tightest_gpu(node, task.milli)]
        return self.cluster.idle_gpus(node, task.gpus)

    def placed(self, task: Task, node: int) -> None:  # noqa: B027  (most need not know)
        """Take note that *task* is on *node* now."""


class Random(Scheduler):
    name = "Random"

    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        scores = np.zeros(fitting.size)
        scores[self.rng.randrange(fitting.size)] = BEST
        return scores

    def gpus(self, task: Task, node: int) -> Sequence[int]:
        if task.gpus == 1 and task.milli < WHOLE:
            wide = np.flatnonzero(self.cluster.gpus[node] >= self.cluster.need(task.milli, node))
            return [int(wide[self.rng.randrange(wide.size)])]
        return super().gpus(task, node)


class DotProd(Scheduler):
    name = "DotProd"

    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        cpu = self.cluster.cpu[fitting] / LARGEST_CPU * (task.cpu / LARGEST_CPU)
        gpu = self.cluster.free[fitting] / LARGEST_GPU * (task.total_milli / LARGEST_GPU)
        return (BEST * (1 - (cpu + gpu) / 2)).astype(np.int64)


class Clustering(Scheduler):
    name = "GpuClustering"

    def __init__(self, cluster: Cluster, mix: Mix, rng: random.Random) -> None:
        super().__init__(cluster, mix, rng)
        self._holds = np.zeros((len(cluster.nodes), MOST_GPUS + 1), dtype=bool)
        """Whether a node holds tasks that share a GPU (0), or of so many whole ones."""

    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        if not task.gpus:
            return np.zeros(fitting.size)
        holds = self._holds[fitting]
        kinds = holds.sum(axis=1)
        same = holds[:, _kind(task)]
        quarter = np.select([same & (kinds == 1), same, kinds == 0], [3, 2, 1], 0)
        full = (LARGEST_GPU - self.cluster.free[fitting]) * (BEST // 4) // LARGEST_GPU
        return full + quarter * (BEST // 4)

    def placed(self, task: Task, node: int) -> None:
        if task.gpus:
            self._holds[node, _kind(task)] = True


class Packing(Scheduler):
    name = "GpuPacking"

    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        if not task.gpus:
            return np.zeros(fitting.size)
        cluster = self.cluster
        idle = cluster.idle[fitting]
        tightest = np.full(fitting.size, WHOLE)
        if task.milli < WHOLE:
            tightest = cluster.tightest(task.milli)[fitting]
        in_use = np.maximum(BEST - tightest * 100 // WHOLE // 10, BEST // 2)
        on_used_node = np.maximum(BEST // 2 - task.gpus, BEST // 3)
        on_idle_node = np.maximum(BEST // 3 - idle, idle)
        score = np.where(tightest < WHOLE, in_use, on_used_node)
        return np.where(idle == cluster.count[fitting], on_idle_node, score)


class BestFit(Scheduler):
    name = "BestFit"

    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        cpu = (self.cluster.cpu[fitting] - task.cpu) / LARGEST_CPU
        gpu = (self.cluster.free[fitting] - task.total_milli) / LARGEST_GPU
        return ((1 - (cpu * 0.5 + gpu * 0.5)) * BEST).astype(np.int64)


class Fgd(Scheduler):
    """Scores are kept from task to task: only nodes that changed since a kind of task came last are looked at again."""

    name = "FGD"

    def __init__(self, cluster: Cluster, mix: Mix, rng: random.Random) -> None:
        super().__init__(cluster, mix, rng)
        self._changed: list[int] = []
        """Nodes that tasks were placed on, in order."""
        self._known: dict[tuple[int, int, int], tuple[int, np.ndarray]] = {}
        """Kind of task -> how many changes its scores include, and a score for every node."""
        self._score_of: dict[tuple, int] = {}
        self._fragmentation = {
            node.model: Fragmentation(
                ((cpu, gpus, cluster.sizes.on(node, milli)), share)
                for (cpu, gpus, milli), share in mix
            )
            for node in {node.model: node for node in cluster.nodes}.values()
        }

    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        kind = (task.cpu, task.gpus, task.milli)
        seen, scores = self._known.get(kind, (None, None))
        if scores is None:
            scores, stale = np.full(len(self.cluster.nodes), -1), fitting.tolist()
        else:
            stale = set(self._changed[seen:])
        for node in stale:
            scores[node] = -1
        found = scores[fitting]
        for place in np.flatnonzero(found == -1):
            node = fitting[place]
            found[place] = scores[node] = self._score(task, node)
        self._known[kind] = len(self._changed), scores
        return found

    def gpus(self, task: Task, node: int) -> Sequence[int]:
        if task.gpus == 1 and task.milli < WHOLE:
            row = self.cluster.gpus[node].tolist()
            _, free = self._best(task, node, int(self.cluster.cpu[node]), row)
            return [row.index(free)]
        return super().gpus(task, node)

    def placed(self, task: Task, node: int) -> None:
        self._changed.append(node)

    def _score(self, task: Task, node: int) -> int:
        row = self.cluster.gpus[node].tolist()
        cpu = int(self.cluster.cpu[node])
        key = (task.cpu, task.gpus, task.milli, self.cluster.nodes[node].model, cpu, *row)
        score = self._score_of.get(key)
        if score is None:
            score = self._score_of[key] = self._best(task, node, cpu, row)[0]
        return score

    def _best(self, task: Task, node: int, cpu: int, row: list[int]) -> tuple[int, int]:
        """The best score of *task* on a node, and how much is free of the first GPU that gives it."""
        of = self._fragmentation[self.cluster.nodes[node].model].of
        before = of(cpu, tuple(sorted(row)))
        if task.gpus != 1 or task.milli == WHOLE:
            after = of(cpu - task.cpu, tuple(sorted(_without(row, task.gpus))))
            return _squash(before - after), WHOLE
        need = self.cluster.need(task.milli, node)
        best = (-1, NOT_HERE)
        for free in dict.fromkeys(row):  # GPUs with equally much free are alike
            if free >= need:
                left = row.copy()
                left[left.index(free)] -= need
                score = _squash(before - of(cpu - task.cpu, tuple(sorted(left))))
                if score > best[0]:
                    best = (score, free)
        return best


SCHEDULERS: tuple[type[Scheduler], ...] = (Random, DotProd, Clustering, Packing, BestFit, Fgd)


def _kind(task: Task) -> int:
    return task.gpus if task.milli == WHOLE else 0


def _without(row: list[int], count: int) -> list[int]:
    """*row* after *count* idle GPUs are taken whole."""
    left = row.copy()
    for _ in range(count):
        left[left.index(WHOLE)] = 0
    return left


def _squash(gain: float) -> int:
    """From thousandths of fragments less to a score: the logistic function, cut to a whole number."""
    return int(BEST / (1 + math.exp(-gain / WHOLE)))
