"""Where the first job of the queue would run: the three queues of the papers.

    FCFS  on nodes with enough idle GPUs (2014: figure 5, where a node serves one job; 2016: nodes are shared)
    RQ    as FCFS as far as that goes; further processes run on any node, with GPUs from others (2014: figure 6)
    MRQ   as RQ; and a borrowed GPU goes back as soon as one of the own node is idle (2016: section 3.2)

Nodes with fewer processes come first when GPUs are borrowed. A process takes what GPUs its own node has idle before it
borrows any. No two processes of a job share a node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studies.batch.cluster import Cluster, Process
from studies.batch.jobs import Job


@dataclass(frozen=True)
class Queue:
    """What tells the queues apart."""

    name: str
    remote: bool = False
    """A process may use GPUs of other nodes."""
    migrates: bool = False
    """It leaves them for those of its own node (mrCUDA)."""
    shares_nodes: bool = True
    """FCFS puts jobs on nodes where others run."""

    def place(self, cluster: Cluster, job: Job) -> list[Process] | None:
        """Return the processes of *job*, which nobody has added yet; None if it has to wait."""
        meets = cluster.meets(job)
        suitable = meets & (cluster.gpus >= job.gpus)
        if not self.shares_nodes:
            suitable &= cluster.busy == 0
        nodes = np.flatnonzero(suitable)[: job.nodes].tolist()
        processes = [Process(job, node, job.gpus) for node in nodes]
        missing = job.nodes - len(processes)
        if not missing:
            return processes
        if not self.remote:
            return None
        more = _borrowing(cluster, job, meets, nodes, missing)
        return None if more is None else processes + more


FCFS = Queue("fcfs")
RQ = Queue("rq", remote=True)
MRQ = Queue("mrq", remote=True, migrates=True)

G_QUEUE = Queue("fcfs", shares_nodes=False)
R_QUEUE = Queue("rq", remote=True, shares_nodes=False)
"""Those of 2014: a node serves one job, unless GPUs are borrowed."""


def _borrowing(
    cluster: Cluster, job: Job, meets: np.ndarray, taken: list[int], missing: int
) -> list[Process] | None:
    """Find room for *missing* more processes, with the GPUs that are idle on whichever node."""
    idle = cluster.gpus.copy()
    idle[taken] -= job.gpus
    if idle.sum() < missing * job.gpus:
        return None
    busy = cluster.busy.copy()
    busy[taken] += 1
    open_to = meets.copy()
    open_to[taken] = False
    hosts = _least_busy_first(busy, idle, np.flatnonzero(open_to))[:missing]
    if len(hosts) < missing:
        return None
    processes = []
    for node in hosts:
        local = min(int(idle[node]), job.gpus)
        idle[node] -= local
        processes.append(Process(job, node, local))
    busy[hosts] += 1
    for process in processes:
        for _ in range(job.gpus - process.local):
            lender = _least_busy_first(busy, idle, np.flatnonzero(idle > 0))[0]
            idle[lender] -= 1
            busy[lender] += 1
            process.lenders.append(lender)
    return processes


def _least_busy_first(busy: np.ndarray, idle: np.ndarray, nodes: np.ndarray) -> list[int]:
    """*nodes* by the processes on them, then by idle GPUs (most first), then in order."""
    return nodes[np.lexsort((nodes, -idle[nodes], busy[nodes]))].tolist()
