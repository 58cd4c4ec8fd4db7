# SPDX-License-Identifier: Apache-2.0
"""The queue disciplines of the papers: on which nodes and GPUs the first job of the queue starts, or that it waits.

    FCFS  on nodes with enough idle GPUs (2014: figure 5, where a node runs one job; 2016: jobs share nodes)
    RQ    as FCFS as far as possible; the other processes run on any node, with remote GPUs (2014: figure 6)
    MRQ   as RQ, and a process leaves a remote GPU as soon as one of its own node is idle (2016: section 3.2)

Where remote GPUs are used, nodes with fewer processes are preferred. A process uses all idle GPUs of its own node
before any remote one. No two processes of a job are on the same node.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from studies.batch.cluster import BatchCluster, BatchProcess
from studies.batch.jobs import BatchJob


@dataclass(frozen=True)
class QueueDiscipline:
    """The properties in which the queues differ."""

    name: str
    remote: bool = False
    """A process may use GPUs of other nodes."""
    migrates: bool = False
    """A process leaves remote GPUs for GPUs of its own node (mrCUDA)."""
    shares_nodes: bool = True
    """FCFS places jobs on nodes where other jobs run."""
    whole_process: bool = False
    """A process whose own node has too few idle GPUs uses all its GPUs remotely, those of its node too, as figure 6 of
    2014 prints it. Else it uses the local ones first."""
    fetches: bool = False
    """A migration takes the data from the remote GPU by rCUDA first: the term time_rcuda that equation 6 of 2016 has.
    Else it counts once only, as the copy to the local GPU."""

    def place(self, cluster: BatchCluster, job: BatchJob) -> list[BatchProcess] | None:
        """Return the processes of *job*, not yet added to *cluster*; None if the job has to wait."""
        suitable = cluster.has_cpu_and_memory(job)
        with_gpus = suitable & (cluster.idle_gpus >= job.gpus)
        if not self.shares_nodes:
            with_gpus &= cluster.process_count == 0
        nodes = np.flatnonzero(with_gpus)[: job.nodes].tolist()
        processes = [BatchProcess(job, node, job.gpus) for node in nodes]
        missing = job.nodes - len(processes)
        if not missing:
            return processes
        if not self.remote:
            return None
        more = _place_with_remote_gpus(
            cluster, job, suitable, nodes, missing, whole_process=self.whole_process
        )
        return None if more is None else processes + more


FCFS = QueueDiscipline("fcfs")
RQ = QueueDiscipline("rq", remote=True)
MRQ = QueueDiscipline("mrq", remote=True, migrates=True)

G_QUEUE = QueueDiscipline("fcfs", shares_nodes=False)
R_QUEUE = QueueDiscipline("rq", remote=True, shares_nodes=False)
"""The two of 2014: a node runs one job, unless GPUs are used remotely."""
R_QUEUE_PRINTED = QueueDiscipline("rq", remote=True, shares_nodes=False, whole_process=True)
RQ_PRINTED = QueueDiscipline("rq", remote=True, whole_process=True)
MRQ_PRINTED = QueueDiscipline("mrq", remote=True, migrates=True, fetches=True)
"""RQ and MRQ as the papers print them, where that is not how we read them."""


def _place_with_remote_gpus(
    cluster: BatchCluster,
    job: BatchJob,
    suitable: np.ndarray,
    taken: list[int],
    missing: int,
    *,
    whole_process: bool,
) -> list[BatchProcess] | None:
    """Return *missing* more processes of *job*, with idle GPUs of any nodes; None if there are too few.

    *suitable* says which nodes have the CPUs and the memory; those of *taken* have a process of the job already.
    """
    idle = cluster.idle_gpus.copy()
    idle[taken] -= job.gpus
    if idle.sum() < missing * job.gpus:
        return None
    process_count = cluster.process_count.copy()
    process_count[taken] += 1
    free_for_job = suitable.copy()
    free_for_job[taken] = False
    nodes = _least_busy_first(process_count, idle, np.flatnonzero(free_for_job))[:missing]
    if len(nodes) < missing:
        return None
    # First every process gets the idle GPUs of its own node, then remote GPUs are chosen among those that are left.
    processes = []
    for node in nodes:
        local = 0 if whole_process else min(int(idle[node]), job.gpus)
        idle[node] -= local
        processes.append(BatchProcess(job, node, local))
    process_count[nodes] += 1
    lenders = [
        (int(process_count[node]), -int(idle[node]), node)
        for node in np.flatnonzero(idle > 0).tolist()
    ]
    heapq.heapify(
        lenders
    )  # in the order of `_least_busy_first`, of which only the first is ever wanted
    for process in processes:
        for _ in range(job.gpus - process.local_gpus):
            count, negative_idle, remote_node = lenders[0]
            process.remote_nodes.append(remote_node)
            if negative_idle == -1:
                heapq.heappop(lenders)
            else:
                heapq.heapreplace(lenders, (count + 1, negative_idle + 1, remote_node))
    return processes


def _least_busy_first(process_count: np.ndarray, idle: np.ndarray, nodes: np.ndarray) -> list[int]:
    """Return *nodes* sorted by their processes, fewest first; then by idle GPUs, most first; then by number."""
    order: list[int] = nodes[np.lexsort((nodes, -idle[nodes], process_count[nodes]))].tolist()
    return order
