# SPDX-License-Identifier: Apache-2.0
"""Free resources of the nodes, as arrays with one element per node. GPUs are in thousandths.

Nodes have up to eight GPUs. A node with fewer is represented with additional GPUs on which nothing is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from studies.openb.sizes import THOUSANDTHS, ShareSizes
from studies.openb.trace import MOST_GPUS, WHOLE, OpenbNode, Task

NO_CANDIDATE = 9 * WHOLE
"""More than any GPU has free, so that GPUs without room sort last."""


class OpenbCluster:
    """Free CPU, memory and GPU thousandths of *nodes*; element *n* of an array is for node *n*. Not thread-safe."""

    def __init__(self, nodes: Sequence[OpenbNode], sizes: ShareSizes = THOUSANDTHS) -> None:
        self.nodes = nodes
        self.sizes = sizes
        self.milli_on_nodes = cache(self._milli_on_nodes)
        self._has_model = cache(self._nodes_with_model)
        self.free_cpu = np.array([node.cpu for node in nodes])
        self.free_memory = np.array([node.memory for node in nodes])
        self.gpu_count = np.array([node.gpus for node in nodes])
        self.free_milli = np.zeros((len(nodes), MOST_GPUS), dtype=np.int64)
        for index, node in enumerate(nodes):
            self.free_milli[index, : node.gpus] = WHOLE
        self.node_free_milli = self.free_milli.sum(axis=1)
        """Thousandths free on all GPUs of a node together."""
        self.most_free_milli = self.free_milli.max(axis=1)
        """Thousandths free on the emptiest GPU of a node."""
        self.idle_count = (self.free_milli == WHOLE).sum(axis=1)
        """The number of GPUs of a node with no task on them."""
        self.capacity = sum(node.gpus * sizes.of_gpu(node) for node in nodes)
        """The size of all GPUs, in the unit of *sizes*, as is *used*."""
        self.used = 0

    def fits(self, task: Task) -> np.ndarray:
        """Return, for each node, whether it has room for *task*."""
        fits: np.ndarray = (self.free_cpu >= task.cpu) & (self.free_memory >= task.memory)
        if task.gpus == 1:
            fits &= self.most_free_milli >= self.milli_on_nodes(task.milli)
        elif task.gpus:
            fits &= self.idle_count >= task.gpus
        if task.models:
            fits &= self._has_model(task.models)
        return fits

    def least_free_with_room(self, milli: int) -> np.ndarray:
        """Return, for each node, what is free on its fullest GPU with room for a share of *milli*.

        For a node without such a GPU that is `NO_CANDIDATE`.
        """
        least: np.ndarray = np.where(
            self.free_milli >= self.milli_on_nodes(milli)[:, None], self.free_milli, NO_CANDIDATE
        ).min(axis=1)
        return least

    def milli_on(self, milli: int, node: int) -> int:
        """Return the thousandths of a GPU of *node* that a share of *milli* takes."""
        return int(self.milli_on_nodes(milli)[node])

    def place(self, task: Task, node: int, gpus: Sequence[int]) -> None:
        """Place *task* on the given GPUs of *node*. Raises `ValueError` if they have no room for it."""
        row, need = self.free_milli[node], self.milli_on(task.milli, node)
        if self.free_cpu[node] < task.cpu or self.free_memory[node] < task.memory:
            raise ValueError(f"{self.nodes[node].name} has no room for {task}")
        if len(set(gpus)) != task.gpus or any(row[gpu] < need for gpu in gpus):
            raise ValueError(f"GPUs {gpus} of {self.nodes[node].name} have no room for {task}")
        self.free_cpu[node] -= task.cpu
        self.free_memory[node] -= task.memory
        self.take(node, gpus, need)
        self.used += task.gpus * self._size(task.milli, node)

    def take(self, node: int, gpus: Sequence[int], milli: int) -> None:
        """Take *milli* of each of the given GPUs of *node*, or what is free there if that is less."""
        row = self.free_milli[node]
        for gpu in gpus:
            row[gpu] = max(row[gpu] - milli, 0)
        self.node_free_milli[node] = row.sum()
        self.most_free_milli[node] = row.max()
        self.idle_count[node] = (row == WHOLE).sum()

    def first_idle_gpus(self, node: int, count: int) -> list[int]:
        """Return the first *count* GPUs of *node* with no task on them."""
        idle: list[int] = np.flatnonzero(self.free_milli[node] == WHOLE)[:count].tolist()
        return idle

    def fullest_gpu_with_room(self, node: int, milli: int) -> int:
        """Return the fullest GPU of *node* with room for a share of *milli*; the first of equals."""
        row = self.free_milli[node]
        return int(np.where(row >= self.milli_on(milli, node), row, NO_CANDIDATE).argmin())

    def _milli_on_nodes(self, milli: int) -> np.ndarray:
        """Return, for each node, the thousandths of a GPU that a share of *milli* takes there."""
        return np.array([self.sizes.milli_on(node, milli) for node in self.nodes])

    def _nodes_with_model(self, models: tuple[str, ...]) -> np.ndarray:
        """Return, for each node, whether its GPUs are of one of *models*."""
        return np.array([node.model in models for node in self.nodes])

    def _size(self, milli: int, node: int) -> int:
        """Return the size of a share of *milli* on *node*, in the unit of *sizes*."""
        if milli in (0, WHOLE):
            return self.sizes.of_gpu(self.nodes[node]) if milli else 0
        return self.sizes.of_share(milli)
