"""Nodes as batch jobs fill them: what is free on each, and who is on it.

A process is one job's part on one node. It has GPUs of that node and, under RQ and MRQ, of others: each of those has a
daemon on the lender, which counts among the lender's processes because it takes part of its network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from studies.batch import models
from studies.batch.jobs import Job


@dataclass(slots=True, eq=False)
class Process:
    """One job's part on *node*."""

    job: Job
    node: int
    local: int
    """GPUs of its own node."""
    lenders: list[int] = field(default_factory=list)
    """The node of each remote GPU."""
    migrated: int = 0
    """Of the local GPUs, those that took over from a remote one."""


class Cluster:
    """*count* equal nodes. Not thread-safe."""

    def __init__(self, count: int, node: models.Node) -> None:
        self.node = node
        self.gpus = np.full(count, node.gpus)
        """Idle ones of each node."""
        self.cpus = np.full(count, node.cpus)
        self.memory = np.full(count, node.memory)
        self.busy = np.zeros(count, dtype=np.int64)
        """Processes and daemons on each node."""
        self.processes: list[dict[Process, None]] = [{} for _ in range(count)]
        """Those that run on a node, or use one of its GPUs from elsewhere; in the order in which they came."""

    def __len__(self) -> int:
        return len(self.gpus)

    def meets(self, job: Job) -> np.ndarray:
        """Say of each node whether it has the CPUs and the memory for a process of *job*."""
        return (self.cpus >= job.cpus) & (self.memory >= job.memory)

    def add(self, process: Process) -> None:
        """Take what *process* needs; `ValueError` if it is not there."""
        job, node = process.job, process.node
        if self.cpus[node] < job.cpus or self.memory[node] < job.memory:
            raise ValueError(f"node {node} has no room for a process of job {job.id}")
        if process.local + len(process.lenders) != job.gpus:
            raise ValueError(f"job {job.id} needs {job.gpus} GPUs on each node")
        self._take_gpus(node, process.local)
        self.cpus[node] -= job.cpus
        self.memory[node] -= job.memory
        self.busy[node] += 1
        self.processes[node][process] = None
        for lender in process.lenders:
            self._take_gpus(lender, 1)
            self.busy[lender] += 1
            self.processes[lender][process] = None

    def remove(self, process: Process) -> None:
        """Give back all that *process* has."""
        job, node = process.job, process.node
        self.gpus[node] += process.local
        self.cpus[node] += job.cpus
        self.memory[node] += job.memory
        self.busy[node] -= 1
        del self.processes[node][process]
        for lender in process.lenders:
            self.gpus[lender] += 1
            self.busy[lender] -= 1
            self.processes[lender].pop(process, None)

    def migrate(self, process: Process, lender: int) -> None:
        """Have *process* use an idle GPU of its own node instead of the one that *lender* lent it."""
        self._take_gpus(process.node, 1)
        process.lenders.remove(lender)
        process.local += 1
        process.migrated += 1
        self.gpus[lender] += 1
        self.busy[lender] -= 1
        if lender not in process.lenders:
            del self.processes[lender][process]

    def borrowers(self, node: int) -> Iterator[Process]:
        """The processes on *node* that use remote GPUs, oldest first."""
        return (
            process
            for process in list(self.processes[node])
            if process.node == node and process.lenders
        )

    def idle_on_busy_nodes(self) -> int:
        """GPUs that nobody uses on nodes where somebody runs."""
        return int(self.gpus[self.busy > 0].sum())

    def idle(self) -> int:
        return int(self.gpus.sum())

    def _take_gpus(self, node: int, count: int) -> None:
        if self.gpus[node] < count:
            raise ValueError(f"node {node} has no {count} idle GPUs")
        self.gpus[node] -= count
