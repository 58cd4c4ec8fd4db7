# SPDX-License-Identifier: Apache-2.0
"""One run: a job set on a cluster under one queue discipline, as a discrete-event simulation.

1. Between two events nothing changes, so a job progresses at a constant rate: per second, 1 / (its execution time under
   the present conditions) of itself. When the conditions change, the rest of the job progresses at the new rate. There
   are no time steps, and so no error of time steps.
2. The execution time of a job is that of its slowest process (2014: equation 3; 2016: equation 9): network, GPUs, and
   everything else.
3. A migration stops the GPU that migrates for the time of replay and memsync (2016: equations 4, 6 and 7). Since the
   slowest GPU decides, a job loses in total the longest stop of any of its GPUs. The memory that is copied is all the
   data that the job moves, as one region, up to the memory of a GPU.
4. Jobs start in the order of arrival. A job that has to wait makes all later ones wait.
5. GPUs that become idle are given to processes with remote GPUs first (MRQ), then to the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gsaas.sim.clock import Clock, Event
from studies.batch import models
from studies.batch.cluster import BatchCluster, BatchProcess
from studies.batch.jobs import BatchJob
from studies.batch.queues import QueueDiscipline

ARRIVAL_PRIORITY, END_PRIORITY = 1, 0
"""At equal times jobs end before others arrive, so that an arrival finds their GPUs idle."""


@dataclass(frozen=True, slots=True)
class BatchJobRecord:
    """What became of one job. Times in seconds since the beginning."""

    job: int
    arrival: float
    start: float
    end: float
    gpus: int
    """The number of its GPUs on all its nodes."""
    remote: int
    """How many of them were on other nodes than their process when the job started."""
    migrated: int
    """How many of those it had left for local ones when it ended."""

    @property
    def wait(self) -> float:
        """Seconds from arrival to start."""
        return self.start - self.arrival

    @property
    def execution(self) -> float:
        """Seconds from start to end."""
        return self.end - self.start

    @property
    def lifetime(self) -> float:
        """Seconds from arrival to end."""
        return self.end - self.arrival


@dataclass(frozen=True)
class BatchOutcome:
    """The result of one run: the jobs by their numbers, and means of idle GPUs over time."""

    queue: str
    records: Sequence[BatchJobRecord]
    idle_gpus: float
    """The mean number of idle GPUs from the first arrival to the last end."""
    idle_on_busy_nodes: float
    """The same, of nodes with at least one process."""
    idle_while_waiting: float
    """The same as *idle_gpus*, over the times with a job in the queue: what fragmentation costs."""
    events: int
    occupancy: Sequence[tuple[float, int, int, int]] = ()
    """(time, node, job, change in GPUs) for each claim and release, if requested."""


@dataclass(slots=True, eq=False)
class _RunningBatchJob:
    """A job that runs, and its progress."""

    job: BatchJob
    processes: list[BatchProcess]
    start: float
    remote: int
    nodes: list[int]
    """The node of each process."""
    network_nodes: list[int] = field(default_factory=list)
    """The nodes of the processes that use remote GPUs, and of those GPUs."""
    local: bool = False
    """Whether any process has a GPU of its own node."""
    uses_mhelper: bool = False
    """Whether any process has more than one migrated GPU."""
    conditions: tuple[int, int, bool, bool] | None = None
    """What *execution_time* was computed from; None if its GPUs are others since then."""
    remaining: float = 1.0
    """The fraction of the job that is still to be done at *updated_at*."""
    execution_time: float = 0.0
    """Seconds that the whole job would take under the present conditions."""
    updated_at: float = 0.0
    """In the future while a migration stops the job."""
    longest_stop: float = 0.0
    """Seconds of the longest stop of any of its GPUs so far."""
    end: Event | None = None
    """The event that ends it."""

    def look_at_gpus(self) -> None:
        """Update what follows from where its GPUs are."""
        self.network_nodes = []
        for process in self.processes:
            if process.remote_nodes:
                self.network_nodes += (process.node, *process.remote_nodes)
            if process.local_gpus:
                self.local = True
            if process.migrated_gpus > 1:
                self.uses_mhelper = True


class BatchSimulation:
    """One run. *check*, if given, is called with the cluster after every event.

    With *occupancy* the outcome says which job had GPUs of which node when.
    """

    def __init__(
        self,
        jobs: Iterable[BatchJob],
        nodes: int,
        queue: QueueDiscipline,
        *,
        node: models.BatchNode = models.NODE_2016,
        remoting: models.RemotingCosts = models.RCUDA_5,
        occupancy: bool = False,
        check: Callable[[BatchCluster], None] | None = None,
    ) -> None:
        self.cluster = BatchCluster(nodes, node)
        self._queue = queue
        self._remoting = remoting
        self._clock = Clock()
        self._waiting: deque[BatchJob] = deque()
        self._running: dict[int, _RunningBatchJob] = {}
        self._records: list[BatchJobRecord] = []
        self._check = None if check is None else lambda: check(self.cluster)
        self._occupancy: list[tuple[float, int, int, int]] | None = [] if occupancy else None
        # GPU seconds of idle GPUs: of all, of those on busy nodes, and of all while jobs waited.
        self._idle = self._idle_busy = self._idle_waiting = 0.0
        self._waiting_seconds = 0.0
        self._measured_at: float | None = None
        for job in jobs:
            self._clock.schedule(job.arrival, self._arrive, job, priority=ARRIVAL_PRIORITY)

    def run(self) -> BatchOutcome:
        """Run all jobs and return the result. Raises `ValueError` for a job that the cluster could never run."""
        self._clock.run(self._check)
        if self._waiting:
            job = self._waiting[0]
            raise ValueError(f"job {job.id} fits nowhere: {job}")
        records = sorted(self._records, key=lambda record: record.job)
        begin = min((record.arrival for record in records), default=0.0)
        span = (self._clock.now - begin) or 1.0
        return BatchOutcome(
            self._queue.name,
            records,
            self._idle / span,
            self._idle_busy / span,
            self._idle_waiting / (self._waiting_seconds or 1.0),
            self._clock.events,
            self._occupancy or (),
        )

    def _arrive(self, job: BatchJob) -> None:
        self._accumulate_idle()
        self._waiting.append(job)
        if len(self._waiting) == 1:
            self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting:
            processes = self._queue.place(self.cluster, self._waiting[0])
            if processes is None:
                return
            self._start(self._waiting.popleft(), processes)

    def _start(self, job: BatchJob, processes: list[BatchProcess]) -> None:
        now = self._clock.now
        remote = sum(len(process.remote_nodes) for process in processes)
        nodes = [process.node for process in processes]
        running = _RunningBatchJob(job, processes, now, remote, nodes, updated_at=now)
        self._running[job.id] = running
        for process in processes:
            self.cluster.add(process)
            self._record_occupancy(process, 1)
        self._update_ends(_nodes_used_by(processes))

    def _finish(self, running: _RunningBatchJob) -> None:
        self._accumulate_idle()
        job, processes = running.job, running.processes
        del self._running[job.id]
        changed_nodes = _nodes_used_by(processes)
        for process in processes:
            self._record_occupancy(process, -1)
            self.cluster.remove(process)
        migrated = sum(process.migrated_gpus for process in processes)
        gpus = job.nodes * job.gpus
        self._records.append(
            BatchJobRecord(
                job.id, job.arrival, running.start, self._clock.now, gpus, running.remote, migrated
            )
        )
        if self._queue.migrates:
            changed_nodes |= self._migrate_to_idle_gpus(changed_nodes)
        self._update_ends(changed_nodes)
        self._start_waiting()

    def _migrate_to_idle_gpus(self, idle: dict[int, None]) -> dict[int, None]:
        """Migrate processes with remote GPUs on nodes that have idle GPUs now; return all nodes that this changes."""
        changed_nodes: dict[int, None] = {}
        # Each migration makes a GPU idle on another node, which is appended to the nodes to visit.
        todo = deque(idle)
        while todo:
            node = todo.popleft()
            for process in self.cluster.processes_with_remote_gpus(node):
                while process.remote_nodes and self.cluster.has_idle_gpu(node):
                    remote_node = process.remote_nodes[0]
                    self._migrate(process, remote_node)
                    changed_nodes |= {node: None, remote_node: None}
                    todo.append(remote_node)
        return changed_nodes

    def _migrate(self, process: BatchProcess, remote_node: int) -> None:
        running = self._running[process.job.id]
        self._update_progress(running)
        self._record_occupancy(process, -1)
        self.cluster.migrate(process, remote_node)
        self._record_occupancy(process, 1)
        work = process.job.work
        done = 1 - running.remaining
        copied = min(work.gpu_bytes, self.cluster.node.gpu_memory)
        stop = models.replay(done * work.calls) + models.memsync(copied)
        if self._queue.fetches:
            processes_on = self.cluster.processes_on
            count = max(processes_on[process.node], processes_on[remote_node])
            region = models.Work(0, calls=1, gpu_bytes=copied)
            stop += models.remote_gpu(region, self.cluster.node, self._remoting, count)
        running.updated_at = max(running.updated_at, self._clock.now) + max(
            stop - running.longest_stop, 0.0
        )
        running.longest_stop = max(stop, running.longest_stop)
        # So that `_update_ends` schedules a new end in any case.
        running.conditions, running.execution_time = None, 0.0

    def _update_ends(self, nodes: Iterable[int]) -> None:
        """Schedule a new end for every job on *nodes* whose execution time has changed."""
        jobs: dict[int, int] = {}
        for node in nodes:
            jobs.update(self.cluster.jobs_on[node])
        for job in jobs:
            running = self._running[job]
            if running.conditions is None:
                running.look_at_gpus()
            conditions = self._conditions(running)
            if conditions == running.conditions:
                continue
            running.conditions = conditions
            execution_time = self._execution_time(running.job.work, *conditions)
            if execution_time == running.execution_time:
                continue
            self._update_progress(running)
            running.execution_time = execution_time
            if running.end is not None:
                running.end.cancel()
            end = running.updated_at + running.remaining * execution_time
            running.end = self._clock.schedule(end, self._finish, running, priority=END_PRIORITY)

    def _update_progress(self, running: _RunningBatchJob) -> None:
        """Subtract the progress since the last update from what remains of a job."""
        elapsed = self._clock.now - running.updated_at
        if elapsed > 0:
            if running.execution_time:
                running.remaining = max(running.remaining - elapsed / running.execution_time, 0.0)
            running.updated_at = self._clock.now

    def _conditions(self, running: _RunningBatchJob) -> tuple[int, int, bool, bool]:
        """Return what the execution time of a job depends on.

        That is the most processes on any of its nodes; the same of the nodes that its remote GPUs connect; whether it
        has local GPUs; and whether a process has several migrated ones.
        """
        count = self.cluster.processes_on.__getitem__
        return (
            max(map(count, running.nodes)),
            max(map(count, running.network_nodes), default=0),
            running.local,
            running.uses_mhelper,
        )

    def _execution_time(
        self, work: models.Work, shared: int, remote: int, local: bool, uses_mhelper: bool
    ) -> float:
        """Return the seconds that a whole job would take under these conditions."""
        node = self.cluster.node
        gpu = models.local_gpu(work, node) if local else 0.0
        if uses_mhelper:
            gpu += models.mhelper(work)
        if remote:
            remote_time = models.remote_gpu(work, node, self._remoting, remote)
            if self._queue.migrates:
                remote_time += models.record(work.calls)
            gpu = max(gpu, remote_time)
        return models.network(work, node, shared) + gpu + work.other_seconds

    def _accumulate_idle(self) -> None:
        """Add up the idle GPUs since the last event. To be called before the cluster changes."""
        now = self._clock.now
        if self._measured_at is not None:
            elapsed = now - self._measured_at
            if elapsed:
                idle = self.cluster.idle_gpu_total()
                self._idle += elapsed * idle
                if self._waiting:
                    self._idle_waiting += elapsed * idle
                    self._waiting_seconds += elapsed
                self._idle_busy += elapsed * self.cluster.idle_gpus_on_busy_nodes()
        self._measured_at = now

    def _record_occupancy(self, process: BatchProcess, sign: int) -> None:
        if self._occupancy is None:
            return
        now, job = self._clock.now, process.job.id
        if process.local_gpus:
            self._occupancy.append((now, process.node, job, sign * process.local_gpus))
        for remote_node in process.remote_nodes:
            self._occupancy.append((now, remote_node, job, sign))


def _nodes_used_by(processes: Iterable[BatchProcess]) -> dict[int, None]:
    """Return the nodes that *processes* run on or use GPUs of, as the keys of a dict, which keeps their order."""
    nodes: dict[int, None] = {}
    for process in processes:
        nodes[process.node] = None
        nodes.update(dict.fromkeys(process.remote_nodes))
    return nodes
