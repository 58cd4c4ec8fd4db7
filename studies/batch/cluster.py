# SPDX-License-Identifier: Apache-2.0
"""The nodes of a cluster as batch jobs use them: what is free on each, and which processes run there.

A process is the part of one job on one node. It has GPUs of that node and, under RQ and MRQ, of other nodes: each
remote GPU has a daemon on its own node, which counts as a process of that node because it uses its network.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from studies.batch import models
from studies.batch.jobs import BatchJob


@dataclass(slots=True, eq=False)
class BatchProcess:
    """The part of one job on *node*."""

    job: BatchJob
    node: int
    local_gpus: int
    """The number of its GPUs on its own node."""
    remote_nodes: list[int] = field(default_factory=list)
    """The node of each of its remote GPUs; a node occurs once for each GPU."""
    migrated_gpus: int = 0
    """How many of the local GPUs have replaced a remote one."""


class BatchCluster:
    """*count* equal nodes, numbered from 0. Not thread-safe."""

    def __init__(self, count: int, node: models.BatchNode) -> None:
        self.node = node
        # One element per node in each of these. NumPy is fast for all nodes at once, and several times slower than
        # these arrays for a single one, so each has a view for NumPy, on the same memory.
        self._idle_gpus = array("q", [node.gpus]) * count
        self._idle_cpus = array("q", [node.cpus]) * count
        self._free_memory = array("d", [node.memory]) * count
        self.processes_on = array("q", [0]) * count
        """Processes and daemons on each node."""
        self.idle_gpus = np.frombuffer(self._idle_gpus, np.int64)
        self.idle_cpus = np.frombuffer(self._idle_cpus, np.int64)
        self.free_memory = np.frombuffer(self._free_memory, np.float64)
        """Bytes."""
        self.process_count = np.frombuffer(self.processes_on, np.int64)
        """The same as *processes_on*."""
        self.processes: list[dict[BatchProcess, None]] = [{} for _ in range(count)]
        """The processes that run on a node or use one of its GPUs remotely, in the order in which they were added."""
        self.jobs_on: list[dict[int, int]] = [{} for _ in range(count)]
        """The number of each job on a node -> how many of its processes and daemons are there."""
        self._idle_total, self._idle_on_busy = count * node.gpus, 0

    def __len__(self) -> int:
        return len(self.idle_gpus)

    def has_cpu_and_memory(self, job: BatchJob) -> np.ndarray:
        """Return, for each node, whether it has the CPUs and the memory for a process of *job*."""
        suitable: np.ndarray = (self.idle_cpus >= job.cpus) & (self.free_memory >= job.memory)
        return suitable

    def add(self, process: BatchProcess) -> None:
        """Claim all that *process* needs. Raises `ValueError` if it is not free."""
        job, node = process.job, process.node
        if self._idle_cpus[node] < job.cpus or self._free_memory[node] < job.memory:
            raise ValueError(f"node {node} has no room for a process of job {job.id}")
        if process.local_gpus + len(process.remote_nodes) != job.gpus:
            raise ValueError(f"job {job.id} needs {job.gpus} GPUs on each node")
        self._claim_gpus(node, process.local_gpus)
        self._idle_cpus[node] -= job.cpus
        self._free_memory[node] -= job.memory
        self._enter(node, job)
        self.processes[node][process] = None
        for remote_node in process.remote_nodes:
            self._claim_gpus(remote_node, 1)
            self._enter(remote_node, job)
            self.processes[remote_node][process] = None

    def remove(self, process: BatchProcess) -> None:
        """Release all that *process* has."""
        job, node = process.job, process.node
        self._change_idle(node, process.local_gpus)
        self._idle_cpus[node] += job.cpus
        self._free_memory[node] += job.memory
        self._leave(node, job)
        del self.processes[node][process]
        for remote_node in process.remote_nodes:
            self._change_idle(remote_node, 1)
            self._leave(remote_node, job)
            # With two GPUs of the same node, the process is listed there once.
            self.processes[remote_node].pop(process, None)

    def migrate(self, process: BatchProcess, remote_node: int) -> None:
        """Replace one GPU of *process* on *remote_node* by an idle GPU of its own node.

        Raises `ValueError` if its own node has no idle GPU.
        """
        self._claim_gpus(process.node, 1)
        process.remote_nodes.remove(remote_node)
        process.local_gpus += 1
        process.migrated_gpus += 1
        self._change_idle(remote_node, 1)
        self._leave(remote_node, process.job)
        if remote_node not in process.remote_nodes:
            del self.processes[remote_node][process]

    def processes_with_remote_gpus(self, node: int) -> Iterator[BatchProcess]:
        """Yield the processes on *node* that use remote GPUs, oldest first."""
        return (
            process
            for process in list(self.processes[node])
            if process.node == node and process.remote_nodes
        )

    def has_idle_gpu(self, node: int) -> bool:
        """Return whether *node* has an idle GPU."""
        return self._idle_gpus[node] > 0

    def idle_gpus_on_busy_nodes(self) -> int:
        """Return the number of idle GPUs on nodes with at least one process or daemon."""
        return self._idle_on_busy

    def idle_gpu_total(self) -> int:
        """Return the number of idle GPUs of all nodes."""
        return self._idle_total

    def _claim_gpus(self, node: int, count: int) -> None:
        if self._idle_gpus[node] < count:
            raise ValueError(f"node {node} has no {count} idle GPUs")
        self._change_idle(node, -count)

    def _change_idle(self, node: int, change: int) -> None:
        self._idle_gpus[node] += change
        self._idle_total += change
        if self.processes_on[node]:
            self._idle_on_busy += change

    def _enter(self, node: int, job: BatchJob) -> None:
        """Count one more process or daemon of *job* on *node*."""
        if not self.processes_on[node]:
            self._idle_on_busy += self._idle_gpus[node]
        self.processes_on[node] += 1
        jobs = self.jobs_on[node]
        jobs[job.id] = jobs.get(job.id, 0) + 1

    def _leave(self, node: int, job: BatchJob) -> None:
        """Count one process or daemon of *job* on *node* less."""
        self.processes_on[node] -= 1
        if not self.processes_on[node]:
            self._idle_on_busy -= self._idle_gpus[node]
        jobs = self.jobs_on[node]
        jobs[job.id] -= 1
        if not jobs[job.id]:
            del jobs[job.id]
