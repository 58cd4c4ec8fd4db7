# SPDX-License-Identifier: Apache-2.0
"""A job set under Slurm in three modes: local GPUs (CUDA), exclusive remote GPUs, and remote GPUs shared by memory.

1. Jobs start in the order of submission, and a job that has to wait makes all later ones wait.
2. CUDA: a process runs on a node with an idle GPU, and no two processes of a job on the same node, unless the job asks
   for one node. Remote: processes run on the first nodes with free cores, and GPGPUMS chooses the GPUs by a policy.
3. A process keeps its GPU busy for the fraction `GPU_SHARE` of its time. If the processes on one GPU would need more
   than all its time, all of them slow down by the same factor. A remote GPU lengthens a job by `REMOTE_OVERHEAD`. A job
   is as slow as its slowest process.
4. Power is the idle power of nodes and GPUs, and additional power for each busy core and each busy GPU.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gsaas.gpgpums import policies
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool import Pool
from gsaas.objects.gpu import EXCLUSIVE, SHARED, Gpu
from gsaas.objects.placement import Placement
from gsaas.objects.request import Request
from gsaas.sim.claims import PoolClaims
from gsaas.sim.clock import Clock, Event
from studies.hpc.applications import CORES, SlurmApplication

GPU_MEMORY_MB = 4799
"""MiB of a Tesla K20 with ECC, as CUDA reports it."""
GPU_SHARE = 0.25
REMOTE_OVERHEAD = 0.04
NODE_IDLE_W = 110.0
CORE_BUSY_W = 8.0
GPU_IDLE_W = 25.0
GPU_BUSY_W = 120.0
"""In addition to the idle power. All powers are assumptions: the thesis gives energies only."""


class GpuMode(enum.StrEnum):
    """Which GPUs jobs may use, and how."""

    CUDA = "CUDA"
    EXCLUSIVE = "rCUDA exclusive"
    SHARED = "rCUDA shared"


@dataclass(frozen=True)
class SlurmCluster:
    """The number of GPUs of each node, by node number; every node has `CORES` cores."""

    gpus: tuple[int, ...]


SIXTEEN_NODES = SlurmCluster((1,) * 16)
"""Section 4.1: 16 nodes with a GPU each."""
ONE_GPU_SERVER = SlurmCluster((0,) * 15 + (4,))
"""Section 4.2: 15 nodes without, and a server with four."""


@dataclass(frozen=True)
class SlurmOutcome:
    """The result of one run. Times in seconds."""

    makespan: float
    gpu_utilisation: float
    """Percent of the time in which kernels ran, the mean of all GPUs."""
    energy_kwh: float
    mean_wait: float
    remote: int
    """GPUs on another node than their process, summed over all jobs."""
    events: int


@dataclass(slots=True, eq=False)
class _RunningSlurmJob:
    """A job that runs, and its progress."""

    cores: dict[int, int]
    """Node -> cores."""
    gpus: list[Placement]
    """The GPU of each process."""
    remote: bool
    """Whether any of the GPUs is on another node than its process."""
    remaining: float
    """Seconds that the rest of the job would take alone on local GPUs, at *updated_at*."""
    slowdown: float = 1.0
    """How many times as long it takes under the present conditions."""
    updated_at: float = 0.0
    end: Event | None = None
    """The event that ends it."""


class SlurmSimulation:
    """One run. *check*, if given, is called with the pool and the free cores of each node after every event."""

    def __init__(
        self,
        jobs: Sequence[SlurmApplication],
        cluster: SlurmCluster,
        mode: GpuMode,
        policy: str | Policy = "first-remote",
        check: Callable[[Pool, list[int]], None] | None = None,
    ) -> None:
        self._mode = mode
        if mode is GpuMode.CUDA:
            policy = "first-fit"
        self._policy: Policy = policies.load(policy) if isinstance(policy, str) else policy
        self._names = [f"node{number:02}" for number in range(len(cluster.gpus))]
        self.free_cores = [CORES] * len(cluster.gpus)
        gpus = _gpus(self._names, cluster)
        self.pool = Pool(gpus, self._names)
        self._claims = PoolClaims(self.pool)
        self._node_of = {gpu.uuid: self._names.index(gpu.host) for gpu in gpus}
        # GPU -> the jobs that use it, and by how many of their processes.
        self._users: dict[str, dict[_RunningSlurmJob, int]] = {gpu.uuid: {} for gpu in self.pool}
        self._waiting = deque(jobs)
        self._running: dict[_RunningSlurmJob, None] = {}
        self._clock = Clock()
        self._check = None if check is None else lambda: check(self.pool, self.free_cores)
        self._measured_at = self._gpu_seconds = self._joules = self._waited = 0.0
        self._jobs, self._remote_gpus = len(jobs), 0

    def run(self) -> SlurmOutcome:
        """Run all jobs and return the result. Raises `ValueError` for a job that the cluster could never run."""
        self._clock.schedule(0.0, self._start_waiting)
        self._clock.run(self._check)
        if self._waiting:
            raise ValueError(f"{self._waiting[0].name} fits nowhere in mode {self._mode}")
        makespan = self._clock.now or 1.0
        return SlurmOutcome(
            makespan,
            100 * self._gpu_seconds / (len(self._users) * makespan),
            self._joules / 3.6e6,
            self._waited / self._jobs,
            self._remote_gpus,
            self._clock.events,
        )

    def _start_waiting(self) -> None:
        while self._waiting and self._start(self._waiting[0]):
            self._waiting.popleft()

    def _start(self, job: SlurmApplication) -> bool:
        """Start *job* if there is room for it; return whether there was."""
        nodes = self._choose_nodes(job)
        if nodes is None:
            return False
        claimed = self._claim_gpus(job, nodes)
        if claimed is None:
            return False
        cores = {node: nodes.count(node) * job.cores for node in dict.fromkeys(nodes)}
        for node, count in cores.items():
            self.free_cores[node] -= count
        remote = sum(
            self._node_of[_gpu_of(one)] != node for one, node in zip(claimed, nodes, strict=False)
        )
        running = _RunningSlurmJob(
            cores, claimed, remote > 0, job.seconds, updated_at=self._clock.now
        )
        self._remote_gpus += remote
        self._waited += self._clock.now
        self._running[running] = None
        for one in claimed:
            users = self._users[_gpu_of(one)]
            users[running] = users.get(running, 0) + 1
        running.slowdown = 0.0  # so that `_update_ends` schedules an end in any case
        self._update_ends([running, *self._neighbours(running)])
        return True

    def _finish(self, running: _RunningSlurmJob) -> None:
        self._accumulate()
        del self._running[running]
        neighbours = self._neighbours(running)
        for node, count in running.cores.items():
            self.free_cores[node] += count
        for one in running.gpus:
            self._users[_gpu_of(one)].pop(running, None)
            self._claims.release(one)
        self._update_ends(neighbours)
        self._start_waiting()

    def _choose_nodes(self, job: SlurmApplication) -> list[int] | None:
        """Return the node of each process; None if the job has to wait."""
        if self._mode is GpuMode.CUDA and job.gpus:
            idle = [
                sum(gpu.used_mb == 0 for gpu in self.pool.on_host(name)) for name in self._names
            ]
            per_node = job.processes if job.same_node else 1
            fitting = [
                node
                for node, free in enumerate(self.free_cores)
                if free >= per_node * job.cores and idle[node] >= per_node
            ]
            wanted = 1 if job.same_node else job.processes
            if len(fitting) < wanted:
                return None
            return [node for node in fitting[:wanted] for _ in range(per_node)]
        if job.same_node:
            for node, free in enumerate(self.free_cores):
                if free >= job.processes * job.cores:
                    return [node] * job.processes
            return None
        nodes: list[int] = []
        for node, free in enumerate(self.free_cores):
            room = min(free // job.cores, job.processes - len(nodes))
            nodes += [node] * room
        return nodes if len(nodes) == job.processes else None

    def _claim_gpus(self, job: SlurmApplication, nodes: Sequence[int]) -> list[Placement] | None:
        """Claim a GPU for each process; return them by process.

        Returns None, and claims nothing, if there are too few.
        """
        if not job.gpus:
            return []
        claimed: list[Placement] = []
        for node in nodes:
            request = Request(
                1,
                SHARED if self._mode is GpuMode.SHARED else EXCLUSIVE,
                job.memory_mb if self._mode is GpuMode.SHARED else None,
                host=self._names[node] if self._mode is GpuMode.CUDA else None,
                consumer_host=self._names[node],
            )
            placement = self.pool.place(request, self._policy)
            if placement is None:
                for one in claimed:
                    self._claims.release(one)
                return None
            self._claims.claim(placement, exclusive=request.exclusive)
            claimed.append(placement)
        return claimed

    def _neighbours(self, running: _RunningSlurmJob) -> list[_RunningSlurmJob]:
        """Return the other jobs that use one of its GPUs."""
        found: dict[_RunningSlurmJob, None] = {}
        for one in running.gpus:
            found |= dict.fromkeys(self._users[_gpu_of(one)])
        found.pop(running, None)
        return list(found)

    def _update_ends(self, jobs: Sequence[_RunningSlurmJob]) -> None:
        """Schedule a new end for each of *jobs* whose slowdown has changed."""
        now = self._clock.now
        for running in jobs:
            slowdown = self._slowdown(running)
            if slowdown == running.slowdown:
                continue
            if running.slowdown:
                running.remaining -= (now - running.updated_at) / running.slowdown
            running.updated_at, running.slowdown = now, slowdown
            if running.end is not None:
                running.end.cancel()
            end = now + max(running.remaining, 0.0) * slowdown
            running.end = self._clock.schedule(end, self._finish, running)

    def _slowdown(self, running: _RunningSlurmJob) -> float:
        """Return how many times as long a job takes now as alone on local GPUs."""
        processes = max(
            (sum(self._users[_gpu_of(one)].values()) for one in running.gpus), default=0
        )
        slowdown = max(processes * GPU_SHARE, 1.0)
        return slowdown * (1 + REMOTE_OVERHEAD) if running.remote else slowdown

    def _accumulate(self) -> None:
        """Add up GPU time and energy since the last event. To be called before anything changes."""
        elapsed = self._clock.now - self._measured_at
        self._measured_at = self._clock.now
        if not elapsed:
            return
        busy = sum(min(sum(users.values()) * GPU_SHARE, 1.0) for users in self._users.values())
        cores = sum(CORES - free for free in self.free_cores)
        watts = (
            len(self.free_cores) * NODE_IDLE_W
            + cores * CORE_BUSY_W
            + len(self._users) * GPU_IDLE_W
            + busy * GPU_BUSY_W
        )
        self._gpu_seconds += busy * elapsed
        self._joules += watts * elapsed


def _gpu_of(process: Placement) -> str:
    """Return the UUID of the GPU of one process."""
    return process.shares[0].gpu_uuid


def _gpus(names: Sequence[str], cluster: SlurmCluster) -> list[Gpu]:
    return [
        Gpu(f"{name}-{index}", name, index, GPU_MEMORY_MB, model="Tesla K20")
        for name, count in zip(names, cluster.gpus, strict=True)
        for index in range(count)
    ]
