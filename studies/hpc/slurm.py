"""Jobs on such a cluster in three modes: CUDA, remote GPUs each to one job, remote GPUs shared by memory.

1. Jobs start in the order of submission, and one that has to wait keeps the others waiting.
2. CUDA: a process runs on a node with an idle GPU, and no two of a job on the same, unless they belong together.
   Remote: processes go wherever cores are free, first node first, and GPGPUMS chooses GPUs by the named policy.
3. A process keeps its GPU busy for `GPU_SHARE` of its time. If those on one GPU would keep it busy for longer than
   there is time, all of them slow down alike. A remote GPU lengthens a job by `REMOTE_OVERHEAD`. A job is as slow as
   its slowest process.
4. Power is what is drawn idle, and what busy cores and busy GPUs draw besides.
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
from gsaas.objects.request import Request
from gsaas.sim.clock import Clock
from studies.hpc.applications import CORES, Application

GPU_MEMORY_MB = 4799
"""What CUDA reports of a Tesla K20 with error correction."""
GPU_SHARE = 0.25
REMOTE_OVERHEAD = 0.04
NODE_IDLE_W = 110.0
CORE_BUSY_W = 8.0
GPU_IDLE_W = 25.0
GPU_BUSY_W = 120.0
"""More than idle. All powers are assumptions of ours: the thesis gives energies and no powers."""


class Mode(enum.StrEnum):
    """How jobs get GPUs."""

    CUDA = "CUDA"
    EXCLUSIVE = "rCUDA exclusive"
    SHARED = "rCUDA shared"


@dataclass(frozen=True)
class Cluster:
    """GPUs of each node, in order; every node has the same cores."""

    gpus: tuple[int, ...]


SIXTEEN = Cluster((1,) * 16)
"""Section 4.1: 16 nodes with a GPU each."""
ONE_SERVER = Cluster((0,) * 15 + (4,))
"""Section 4.2: 15 nodes without, and a server with four."""


@dataclass(frozen=True)
class Outcome:
    """One run. Seconds, percent, and kilowatt-hours."""

    makespan: float
    gpu_utilisation: float
    """Of all GPUs, the mean part of the time in which kernels ran."""
    energy_kwh: float
    mean_wait: float
    remote: int
    """GPUs that were on another node than the process, over all jobs."""
    events: int


@dataclass(slots=True, eq=False)
class _Running:
    application: Application
    cores: dict[int, int]
    """Node -> cores."""
    gpus: list[tuple[str, int]]
    """UUID and MiB claimed of each."""
    remote: bool
    remaining: float
    pace: float = 1.0
    """Seconds that a second of its own takes."""
    since: float = 0.0
    plan: int = 0


class Simulation:
    """One set of jobs, one mode. *check*, if given, is called with the pool and the free cores after every event."""

    def __init__(
        self,
        jobs: Sequence[Application],
        cluster: Cluster,
        mode: Mode,
        policy: str = "first-remote",
        check: Callable[[Pool, list[int]], None] | None = None,
    ) -> None:
        self._mode = mode
        self._policy: Policy = policies.load("first-fit" if mode is Mode.CUDA else policy)
        self._names = [f"node{number:02}" for number in range(len(cluster.gpus))]
        self._number_of = {name: number for number, name in enumerate(self._names)}
        self.free_cores = [CORES] * len(cluster.gpus)
        self.pool = Pool(_gpus(self._names, cluster), self._names)
        self._users: dict[str, dict[_Running, int]] = {gpu.uuid: {} for gpu in self.pool}
        self._waiting = deque(jobs)
        self._running: dict[_Running, None] = {}
        self._clock = Clock()
        self._check = None if check is None else lambda: check(self.pool, self.free_cores)
        self._measured = self._gpu_time = self._joules = self._waited = 0.0
        self._jobs, self._remote = len(jobs), 0

    def run(self) -> Outcome:
        """Let all jobs come and go. `ValueError` for one that the cluster could never run."""
        self._clock.schedule(0.0, self._start_waiting)
        self._clock.run(self._check)
        if self._waiting:
            raise ValueError(f"{self._waiting[0].name} fits nowhere in mode {self._mode}")
        makespan = self._clock.now or 1.0
        return Outcome(
            makespan,
            100 * self._gpu_time / (len(self._users) * makespan),
            self._joules / 3.6e6,
            self._waited / self._jobs,
            self._remote,
            self._clock.events,
        )

    def _start_waiting(self) -> None:
        while self._waiting and self._start(self._waiting[0]):
            self._waiting.popleft()

    def _start(self, job: Application) -> bool:
        nodes = self._nodes(job)
        if nodes is None:
            return False
        claimed = self._claim(job, nodes)
        if claimed is None:
            return False
        cores = {node: nodes.count(node) * job.cores for node in dict.fromkeys(nodes)}
        for node, count in cores.items():
            self.free_cores[node] -= count
        far = sum(
            self._number_of[self.pool.get(uuid).host] != node
            for (uuid, _), node in zip(claimed, nodes, strict=False)
        )
        running = _Running(job, cores, claimed, far > 0, job.seconds, since=self._clock.now)
        self._remote += far
        self._waited += self._clock.now
        self._running[running] = None
        for uuid, _ in claimed:
            users = self._users[uuid]
            users[running] = users.get(running, 0) + 1
        running.pace = 0.0
        self._refresh([running, *self._neighbours(running)])
        return True

    def _finish(self, running: _Running, plan: int) -> None:
        if running.plan != plan:
            return
        self._measure()
        del self._running[running]
        neighbours = self._neighbours(running)
        for node, count in running.cores.items():
            self.free_cores[node] += count
        for uuid, size in running.gpus:
            self._users[uuid].pop(running, None)
            gpu = self.pool.get(uuid)
            self.pool.put(gpu.release(size, generation=gpu.generation + 1))
        self._refresh(neighbours)
        self._start_waiting()

    def _nodes(self, job: Application) -> list[int] | None:
        """The node of each process, or None."""
        if self._mode is Mode.CUDA and job.gpus:
            idle = [
                sum(gpu.used_mb == 0 for gpu in self.pool.on_host(name)) for name in self._names
            ]
            each = job.processes if job.together else 1
            fitting = [
                node
                for node, free in enumerate(self.free_cores)
                if free >= each * job.cores and idle[node] >= each
            ]
            wanted = 1 if job.together else job.processes
            return (
                [node for node in fitting[:wanted] for _ in range(each)] or None
                if len(fitting) >= wanted
                else None
            )
        if job.together:
            for node, free in enumerate(self.free_cores):
                if free >= job.processes * job.cores:
                    return [node] * job.processes
            return None
        nodes: list[int] = []
        for node, free in enumerate(self.free_cores):
            room = min(free // job.cores, job.processes - len(nodes))
            nodes += [node] * room
        return nodes if len(nodes) == job.processes else None

    def _claim(self, job: Application, nodes: Sequence[int]) -> list[tuple[str, int]] | None:
        """Claim a GPU for each process; return them in the order of the processes, or None and claim nothing."""
        if not job.gpus:
            return []
        claimed: list[tuple[str, int]] = []
        for node in nodes:
            request = Request(
                1,
                SHARED if self._mode is Mode.SHARED else EXCLUSIVE,
                job.memory_mb if self._mode is Mode.SHARED else None,
                host=self._names[node] if self._mode is Mode.CUDA else None,
                consumer_host=self._names[node],
            )
            placement = self.pool.place(request, self._policy)
            if placement is None:
                for uuid, size in claimed:
                    gpu = self.pool.get(uuid)
                    self.pool.put(gpu.release(size, generation=gpu.generation + 1))
                return None
            (share,) = placement.shares
            gpu = self.pool.get(share.gpu_uuid)
            self.pool.put(
                gpu.claim(
                    share.memory_mb, exclusive=request.exclusive, generation=gpu.generation + 1
                )
            )
            claimed.append((share.gpu_uuid, share.memory_mb))
        return claimed

    def _neighbours(self, running: _Running) -> list[_Running]:
        """Those that use one of its GPUs, too."""
        found: dict[_Running, None] = {}
        for uuid, _ in running.gpus:
            found |= dict.fromkeys(self._users[uuid])
        found.pop(running, None)
        return list(found)

    def _refresh(self, jobs: Sequence[_Running]) -> None:
        now = self._clock.now
        for running in jobs:
            pace = self._pace(running)
            if pace == running.pace:
                continue
            if running.pace:
                running.remaining -= (now - running.since) / running.pace
            running.since, running.pace = now, pace
            running.plan += 1
            end = now + max(running.remaining, 0.0) * pace
            self._clock.schedule(end, self._finish, running, running.plan)

    def _pace(self, running: _Running) -> float:
        crowded = max((sum(self._users[uuid].values()) for uuid, _ in running.gpus), default=0)
        slow = max(crowded * GPU_SHARE, 1.0)
        return slow * (1 + REMOTE_OVERHEAD) if running.remote else slow

    def _measure(self) -> None:
        """Add up GPU time and energy since the last event; call it before anything changes."""
        elapsed = self._clock.now - self._measured
        self._measured = self._clock.now
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
        self._gpu_time += busy * elapsed
        self._joules += watts * elapsed


def _gpus(names: Sequence[str], cluster: Cluster) -> list[Gpu]:
    return [
        Gpu(f"{name}-{index}", name, index, GPU_MEMORY_MB, model="Tesla K20")
        for name, count in zip(names, cluster.gpus, strict=True)
        for index in range(count)
    ]
