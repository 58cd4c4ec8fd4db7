# SPDX-License-Identifier: Apache-2.0
"""The published schedulers, which tie a task to one node: each gives a score to every node, and chooses GPUs on it.

Each node with room gets an integer score from 0 to 100; the node with the highest score is chosen, and of equals the
first. The simulator whose results are to be reproduced does the same (ATC 2023, section 6; the arithmetic, with its
rounding, is that of the plug-ins published with the paper):

    Random         any node, any GPU
    DotProd        the smallest product of what is free and what is asked for (after Tetris, SIGCOMM 2014)
    GpuClustering  nodes with tasks of the same kind, the fullest first
    GpuPacking     GPUs in use before idle ones on a node in use, and those before idle nodes
    BestFit        the least CPU and GPU left over
    FGD            the least growth of fragmentation
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from studies.openb.cluster import NO_CANDIDATE, OpenbCluster
from studies.openb.fragmentation import Fragmentation, TaskMix
from studies.openb.trace import MOST_GPUS, WHOLE, Task

BEST = 100
"""The highest score."""
LARGEST_CPU = 128_000
"""Thousandths of cores of the largest node, to which scores are scaled."""
LARGEST_GPU = MOST_GPUS * WHOLE


class Scheduler(ABC):
    """Chooses nodes and GPUs of one cluster, in its present state. Random choices come from *rng*.

    *mix* are the tasks to expect.
    """

    name: str
    """The name in the published results."""

    def __init__(self, cluster: OpenbCluster, mix: TaskMix, rng: random.Random) -> None:
        self.cluster = cluster
        self.mix = mix
        self.rng = rng

    def choose(self, task: Task) -> tuple[int, Sequence[int]] | None:
        """Return a node with room for *task* and the GPUs to use there; None if no node has room."""
        fitting = np.flatnonzero(self.cluster.fits(task))
        if not fitting.size:
            return None
        node = int(fitting[self.scores(task, fitting).argmax()])
        return node, self.gpus(task, node)

    @abstractmethod
    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        """Return a score for each of the nodes *fitting*."""

    def gpus(self, task: Task, node: int) -> Sequence[int]:
        """Return the GPUs of *node* for *task*: idle ones for whole GPUs, the fullest one with room for a share."""
        if task.gpus == 1 and task.milli < WHOLE:
            return [self.cluster.fullest_gpu_with_room(node, task.milli)]
        return self.cluster.first_idle_gpus(node, task.gpus)

    def task_placed(self, task: Task, node: int) -> None:  # noqa: B027  (most schedulers keep no state)
        """Update the state of the scheduler after *task* was placed on *node*."""


class RandomScheduler(Scheduler):
    """Any node, any GPU."""

    name = "Random"

    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        scores = np.zeros(fitting.size)
        scores[self.rng.randrange(fitting.size)] = BEST
        return scores

    def gpus(self, task: Task, node: int) -> Sequence[int]:
        if task.gpus == 1 and task.milli < WHOLE:
            with_room = np.flatnonzero(
                self.cluster.free_milli[node] >= self.cluster.milli_on(task.milli, node)
            )
            return [int(with_room[self.rng.randrange(with_room.size)])]
        return super().gpus(task, node)


class DotProductScheduler(Scheduler):
    """The smallest product of what is free and what is asked for."""

    name = "DotProd"

    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        cpu = self.cluster.free_cpu[fitting] / LARGEST_CPU * (task.cpu / LARGEST_CPU)
        gpu = self.cluster.node_free_milli[fitting] / LARGEST_GPU * (task.total_milli / LARGEST_GPU)
        scores: np.ndarray = (BEST * (1 - (cpu + gpu) / 2)).astype(np.int64)
        return scores


class ClusteringScheduler(Scheduler):
    """Nodes with tasks of the same kind, the fullest first."""

    name = "GpuClustering"

    def __init__(self, cluster: OpenbCluster, mix: TaskMix, rng: random.Random) -> None:
        super().__init__(cluster, mix, rng)
        self._kinds_on_node = np.zeros((len(cluster.nodes), MOST_GPUS + 1), dtype=bool)
        """[node, kind]: whether the node has tasks of that kind, see `_kind`."""

    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        if not task.gpus:
            return np.zeros(fitting.size)
        has_kind = self._kinds_on_node[fitting]
        kinds = has_kind.sum(axis=1)
        same = has_kind[:, _kind(task)]
        # Best are nodes with tasks of this kind only, then those with tasks of this and other kinds, then empty ones.
        quarter = np.select([same & (kinds == 1), same, kinds == 0], [3, 2, 1], 0)
        fullness = (
            (LARGEST_GPU - self.cluster.node_free_milli[fitting]) * (BEST // 4) // LARGEST_GPU
        )
        scores: np.ndarray = fullness + quarter * (BEST // 4)
        return scores

    def task_placed(self, task: Task, node: int) -> None:
        if task.gpus:
            self._kinds_on_node[node, _kind(task)] = True


class PackingScheduler(Scheduler):
    """GPUs in use before idle ones on a node in use, and those before idle nodes."""

    name = "GpuPacking"

    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        if not task.gpus:
            return np.zeros(fitting.size)
        cluster = self.cluster
        idle = cluster.idle_count[fitting]
        least_free = np.full(fitting.size, WHOLE)
        if task.milli < WHOLE:
            least_free = cluster.least_free_with_room(task.milli)[fitting]
        on_gpu_in_use = np.maximum(BEST - least_free * 100 // WHOLE // 10, BEST // 2)
        on_idle_gpu = np.maximum(BEST // 2 - task.gpus, BEST // 3)
        on_idle_node = np.maximum(BEST // 3 - idle, idle)
        on_node_in_use = np.where(least_free < WHOLE, on_gpu_in_use, on_idle_gpu)
        scores: np.ndarray = np.where(
            idle == cluster.gpu_count[fitting], on_idle_node, on_node_in_use
        )
        return scores


class BestFitScheduler(Scheduler):
    """The least CPU and GPU left over."""

    name = "BestFit"

    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        cpu = (self.cluster.free_cpu[fitting] - task.cpu) / LARGEST_CPU
        gpu = (self.cluster.node_free_milli[fitting] - task.total_milli) / LARGEST_GPU
        scores: np.ndarray = ((1 - (cpu * 0.5 + gpu * 0.5)) * BEST).astype(np.int64)
        return scores


class FgdScheduler(Scheduler):
    """Fragmentation gradient descent: the least growth of fragmentation.

    Scores are cached: when a kind of task arrives again, only nodes that have changed since then get a new score.
    """

    name = "FGD"

    def __init__(self, cluster: OpenbCluster, mix: TaskMix, rng: random.Random) -> None:
        super().__init__(cluster, mix, rng)
        self._changed: list[int] = []
        """Nodes that tasks were placed on, in order."""
        self._cached_scores: dict[tuple[int, int, int], tuple[int, np.ndarray]] = {}
        """Kind of task -> how many of the changes its scores include, and a score for every node; -1: none yet."""
        self._score_of_state: dict[tuple[int | str, ...], int] = {}
        """(Kind of task, state of a node) -> score: many nodes are in the same state."""
        self._fragmentation = {
            node.model: Fragmentation(
                (
                    (kind._replace(milli=cluster.sizes.milli_on(node, kind.milli)), share)
                    for kind, share in mix
                ),
                node.model,
            )
            for node in {node.model: node for node in cluster.nodes}.values()
        }

    def scores(self, task: Task, fitting: np.ndarray) -> np.ndarray:
        kind = (task.cpu, task.gpus, task.milli)
        if kind in self._cached_scores:
            seen, scores = self._cached_scores[kind]
            for node in set(self._changed[seen:]):
                scores[node] = -1
        else:
            scores = np.full(len(self.cluster.nodes), -1)
        found: np.ndarray = scores[fitting]
        for place in np.flatnonzero(found == -1):
            node = fitting[place]
            found[place] = scores[node] = self._score(task, node)
        self._cached_scores[kind] = len(self._changed), scores
        return found

    def gpus(self, task: Task, node: int) -> Sequence[int]:
        if task.gpus == 1 and task.milli < WHOLE:
            row = self.cluster.free_milli[node].tolist()
            _, free = self._best(task, node, int(self.cluster.free_cpu[node]), row)
            return [row.index(free)]
        return super().gpus(task, node)

    def task_placed(self, task: Task, node: int) -> None:
        self._changed.append(node)

    def _score(self, task: Task, node: int) -> int:
        row = self.cluster.free_milli[node].tolist()
        cpu = int(self.cluster.free_cpu[node])
        key = (task.cpu, task.gpus, task.milli, self.cluster.nodes[node].model, cpu, *row)
        score = self._score_of_state.get(key)
        if score is None:
            score = self._score_of_state[key] = self._best(task, node, cpu, row)[0]
        return score

    def _best(self, task: Task, node: int, cpu: int, row: list[int]) -> tuple[int, int]:
        """Return the best score of *task* on a node, and what is free on the first GPU that gives it.

        *cpu* and *row* are the free CPU of the node, and what is free on each of its GPUs.
        """
        fragments = self._fragmentation[self.cluster.nodes[node].model].of_node
        before = fragments(cpu, tuple(sorted(row)))
        if task.gpus != 1 or task.milli == WHOLE:
            after = fragments(cpu - task.cpu, tuple(sorted(_after_taking(row, task.gpus))))
            return _to_score(before - after), WHOLE
        need = self.cluster.milli_on(task.milli, node)
        best = (-1, NO_CANDIDATE)
        for free in dict.fromkeys(row):  # GPUs on which equally much is free give equal scores
            if free >= need:
                left = row.copy()
                left[left.index(free)] -= need
                score = _to_score(before - fragments(cpu - task.cpu, tuple(sorted(left))))
                if score > best[0]:
                    best = (score, free)
        return best


SCHEDULERS: tuple[type[Scheduler], ...] = (
    RandomScheduler,
    DotProductScheduler,
    ClusteringScheduler,
    PackingScheduler,
    BestFitScheduler,
    FgdScheduler,
)


def _kind(task: Task) -> int:
    """Return the number of whole GPUs that *task* asks for; 0 if it shares one."""
    return task.gpus if task.milli == WHOLE else 0


def _after_taking(row: list[int], count: int) -> list[int]:
    """Return *row*, what is free on each GPU, after *count* idle GPUs are allocated."""
    left = row.copy()
    for _ in range(count):
        left[left.index(WHOLE)] = 0
    return left


def _to_score(gain: float) -> int:
    """Return the score for a reduction of fragments by *gain* thousandths: the logistic function, rounded down."""
    return int(BEST / (1 + math.exp(-gain / WHOLE)))
