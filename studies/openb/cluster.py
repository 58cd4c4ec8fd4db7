"""The machines while tasks come: what is free on each, as arrays over all of them, GPUs in thousandths.

Nodes have up to eight GPUs. The row of a node with fewer is filled up with GPUs on which nothing is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from studies.openb.sizes import THOUSANDTHS, Sizes
from studies.openb.trace import WHOLE, Node, Task

MOST_GPUS = 8
NOT_HERE = 9 * WHOLE
"""More than any GPU has free: what is no candidate sorts last."""


class Cluster:
    """Free CPU, memory and GPU thousandths of *nodes*; index *n* is node *n*. Not thread-safe."""

    def __init__(self, nodes: Sequence[Node], sizes: Sizes = THOUSANDTHS) -> None:
        self.nodes = nodes
        self.sizes = sizes
        self.needs = cache(self._needs)
        self.cpu = np.array([node.cpu for node in nodes])
        self.memory = np.array([node.memory for node in nodes])
        self.count = np.array([node.gpus for node in nodes])
        self.gpus = np.zeros((len(nodes), MOST_GPUS), dtype=np.int64)
        for index, node in enumerate(nodes):
            self.gpus[index, : node.gpus] = WHOLE
        self.free = self.gpus.sum(axis=1)
        """Thousandths free on all GPUs of a node."""
        self.most = self.gpus.max(axis=1)
        """Thousandths free on its emptiest GPU."""
        self.idle = (self.gpus == WHOLE).sum(axis=1)
        """Its GPUs with nothing on them."""
        self.capacity = sum(node.gpus * sizes.of_gpu(node) for node in nodes)
        """In the unit of *sizes*, as is what is used."""
        self.used = 0

    def fits(self, task: Task) -> np.ndarray:
        """Say of each node whether it has room for *task*."""
        fits = (self.cpu >= task.cpu) & (self.memory >= task.memory)
        if task.gpus == 1:
            fits &= self.most >= self.needs(task.milli)
        elif task.gpus:
            fits &= self.idle >= task.gpus
        return fits

    def tightest(self, milli: int) -> np.ndarray:
        """Of each node, what is free on the fullest GPU with room for a share of *milli*; `NOT_HERE` without one."""
        return np.where(self.gpus >= self.needs(milli)[:, None], self.gpus, NOT_HERE).min(axis=1)

    def need(self, milli: int, node: int) -> int:
        """Thousandths of a GPU of *node* that a share of *milli* takes."""
        return int(self.needs(milli)[node])

    def place(self, task: Task, node: int, gpus: Sequence[int]) -> None:
        """Put *task* on *node*, on these of its GPUs; `ValueError` if they have not that much."""
        row, need = self.gpus[node], self.need(task.milli, node)
        if self.cpu[node] < task.cpu or self.memory[node] < task.memory:
            raise ValueError(f"{self.nodes[node].name} has no room for {task}")
        if len(set(gpus)) != task.gpus or any(row[gpu] < need for gpu in gpus):
            raise ValueError(f"GPUs {gpus} of {self.nodes[node].name} have no room for {task}")
        self.cpu[node] -= task.cpu
        self.memory[node] -= task.memory
        for gpu in gpus:
            row[gpu] -= need
        self.free[node] -= task.gpus * need
        self.most[node] = row.max()
        self.idle[node] = (row == WHOLE).sum()
        self.used += task.gpus * self._size(task.milli, node)

    def idle_gpus(self, node: int, count: int) -> list[int]:
        """The first *count* GPUs of *node* with nothing on them."""
        return np.flatnonzero(self.gpus[node] == WHOLE)[:count].tolist()

    def tightest_gpu(self, node: int, milli: int) -> int:
        """The fullest GPU of *node* with room for a share of *milli*; the first of equals."""
        row = self.gpus[node]
        return int(np.where(row >= self.need(milli, node), row, NOT_HERE).argmin())

    def _needs(self, milli: int) -> np.ndarray:
        """Of each node, the thousandths of a GPU that a share of *milli* takes there."""
        return np.array([self.sizes.on(node, milli) for node in self.nodes])

    def _size(self, milli: int, node: int) -> int:
        """What a share of *milli* takes, in the unit of *sizes*."""
        if milli in (0, WHOLE):
            return self.sizes.of_gpu(self.nodes[node]) if milli else 0
        return self.sizes.of_share(milli)
