"""A job set on a cluster under one queue, event by event.

1. Between two events nothing changes, so a job advances at an even pace: 1 / (its execution time under the present
   circumstances) of itself per second. When circumstances change, what remains of it takes as long as they say from
   then on. Nothing is stepped, so there is no error of steps.
2. A job's time is that of its slowest process (2014: equation 3; 2016: equation 9): network, GPUs, the rest.
3. A migration stops the GPU that migrates for as long as replay and memsync take (2016: equations 4, 6 and 7). As the
   slowest GPU counts, a job loses in all as much as the longest stop of any of its GPUs. What is copied is all that
   the job moves, as one region, as far as a GPU can hold it.
4. Jobs start in the order of arrival. One that has to wait keeps all others waiting.
5. What became idle goes first to processes that borrowed (MRQ), then to the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gsaas.sim.clock import Clock
from studies.batch import models
from studies.batch.cluster import Cluster, Process
from studies.batch.jobs import Job
from studies.batch.queues import Queue

ARRIVE, FINISH = 1, 0
"""At the same moment, who leaves goes first."""


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one job. Seconds since the beginning."""

    job: int
    arrival: float
    start: float
    end: float
    gpus: int
    """On all its nodes."""
    remote: int
    """Of them, those that were on other nodes when it started."""
    migrated: int
    """Of those, the ones it had left when it ended."""

    @property
    def wait(self) -> float:
        return self.start - self.arrival

    @property
    def execution(self) -> float:
        return self.end - self.start

    @property
    def lifetime(self) -> float:
        return self.end - self.arrival


@dataclass(frozen=True)
class Outcome:
    """One run: the jobs in the order of their numbers, and what the cluster was like on average."""

    queue: str
    records: Sequence[Record]
    idle_gpus: float
    """Mean over the time from the first arrival to the last end."""
    idle_on_busy_nodes: float
    """The same, counting only nodes on which somebody runs."""
    idle_while_waiting: float
    """The same as *idle_gpus*, over the times when somebody waited: what fragmentation costs."""
    events: int
    occupancy: Sequence[tuple[float, int, int, int]] = ()
    """(time, node, job, change in GPUs), if it was asked for."""


@dataclass(slots=True, eq=False)
class _Running:
    job: Job
    processes: list[Process]
    start: float
    remote: int
    remaining: float = 1.0
    """Part of it that is still to be done."""
    pace: float = 0.0
    """Execution time under the present circumstances."""
    since: float = 0.0
    """Until then *remaining* is right. In the future while it stands still."""
    stopped: float = 0.0
    """The longest stop of any of its GPUs so far."""
    plan: int = 0
    """Grows with every change; an end planned under another number does not happen."""


class Simulation:
    """One run. *check*, if given, is called with the cluster after every event."""

    def __init__(
        self,
        jobs: Iterable[Job],
        nodes: int,
        queue: Queue,
        *,
        node: models.Node = models.NODE_2016,
        remoting: models.Remoting = models.RCUDA_5,
        occupancy: bool = False,
        check: Callable[[Cluster], None] | None = None,
    ) -> None:
        self.cluster = Cluster(nodes, node)
        self._queue = queue
        self._remoting = remoting
        self._clock = Clock()
        self._waiting: deque[Job] = deque()
        self._running: dict[int, _Running] = {}
        self._records: list[Record] = []
        self._check = None if check is None else lambda: check(self.cluster)
        self._occupancy: list[tuple[float, int, int, int]] | None = [] if occupancy else None
        self._idle = self._idle_busy = self._idle_waiting = self._somebody_waited = 0.0
        self._measured = None
        for job in jobs:
            self._clock.schedule(job.arrival, self._arrive, job, priority=ARRIVE)

    def run(self) -> Outcome:
        """Let all jobs come and go. `ValueError` for a job that the cluster could never run."""
        self._clock.run(self._check)
        if self._waiting:
            job = self._waiting[0]
            raise ValueError(f"job {job.id} fits nowhere: {job}")
        records = sorted(self._records, key=lambda record: record.job)
        begin = min((record.arrival for record in records), default=0.0)
        span = (self._clock.now - begin) or 1.0
        return Outcome(
            self._queue.name,
            records,
            self._idle / span,
            self._idle_busy / span,
            self._idle_waiting / (self._somebody_waited or 1.0),
            self._clock.events,
            self._occupancy or (),
        )

    def _arrive(self, job: Job) -> None:
        self._measure()
        self._waiting.append(job)
        if len(self._waiting) == 1:
            self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting:
            processes = self._queue.place(self.cluster, self._waiting[0])
            if processes is None:
                return
            self._start(self._waiting.popleft(), processes)

    def _start(self, job: Job, processes: list[Process]) -> None:
        now = self._clock.now
        remote = sum(len(process.lenders) for process in processes)
        running = _Running(job, processes, now, remote, since=now)
        self._running[job.id] = running
        for process in processes:
            self.cluster.add(process)
            self._note(process, 1)
        self._refresh(_touched(processes))

    def _finish(self, running: _Running, plan: int) -> None:
        if running.plan != plan:
            return
        self._measure()
        job, processes = running.job, running.processes
        del self._running[job.id]
        touched = _touched(processes)
        for process in processes:
            self._note(process, -1)
            self.cluster.remove(process)
        migrated = sum(process.migrated for process in processes)
        gpus = job.nodes * job.gpus
        self._records.append(
            Record(
                job.id, job.arrival, running.start, self._clock.now, gpus, running.remote, migrated
            )
        )
        if self._queue.migrates:
            touched |= self._give_back_borrowed(touched)
        self._refresh(touched)
        self._start_waiting()

    def _give_back_borrowed(self, idle: dict[int, None]) -> dict[int, None]:
        """Migrate whoever borrows on a node that has idle GPUs now; return all nodes where that changed something."""
        touched: dict[int, None] = {}
        todo = deque(idle)
        while todo:
            node = todo.popleft()
            for process in self.cluster.borrowers(node):
                while process.lenders and self.cluster.gpus[node]:
                    lender = process.lenders[0]
                    self._migrate(process, lender)
                    touched |= {node: None, lender: None}
                    todo.append(lender)
        return touched

    def _migrate(self, process: Process, lender: int) -> None:
        running = self._running[process.job.id]
        self._advance(running)
        self._note(process, -1)
        self.cluster.migrate(process, lender)
        self._note(process, 1)
        work = process.job.work
        done = 1 - running.remaining
        held = min(work.gpu_bytes, self.cluster.node.gpu_memory)
        stop = models.replay(done * work.calls) + models.memsync(held)
        running.since = max(running.since, self._clock.now) + max(stop - running.stopped, 0.0)
        running.stopped = max(stop, running.stopped)
        running.pace = 0.0  # to be reckoned anew in any case

    def _refresh(self, nodes: Iterable[int]) -> None:
        """Reckon anew the time of every job on *nodes*."""
        jobs: dict[int, None] = {}
        for node in nodes:
            for process in self.cluster.processes[node]:
                jobs[process.job.id] = None
        for job in jobs:
            running = self._running[job]
            pace = self._execution_time(running)
            if pace == running.pace:
                continue
            self._advance(running)
            running.pace = pace
            running.plan += 1
            end = running.since + running.remaining * pace
            self._clock.schedule(end, self._finish, running, running.plan, priority=FINISH)

    def _advance(self, running: _Running) -> None:
        """Take note of what was done since the last change."""
        elapsed = self._clock.now - running.since
        if elapsed > 0:
            if running.pace:
                running.remaining = max(running.remaining - elapsed / running.pace, 0.0)
            running.since = self._clock.now

    def _execution_time(self, running: _Running) -> float:
        """How long the job would take, from its beginning to its end, as things are."""
        busy, node = self.cluster.busy, self.cluster.node
        work = running.job.work
        shared = remote = 0
        local = helped = False
        for process in running.processes:
            here = int(busy[process.node])
            shared = max(shared, here)
            for lender in process.lenders:
                remote = max(remote, here, int(busy[lender]))
            local = local or process.local > 0
            helped = helped or process.migrated > 1
        gpu = models.local_gpu(work, node) if local else 0.0
        if helped:
            gpu += models.mhelper(work)
        if remote:
            far = models.remote_gpu(work, node, self._remoting, remote)
            if self._queue.migrates:
                far += models.record(work.calls)
            gpu = max(gpu, far)
        return models.network(work, node, shared) + gpu + work.other

    def _measure(self) -> None:
        """Add what was idle since the last event; call it before anything changes."""
        now = self._clock.now
        if self._measured is not None:
            elapsed = now - self._measured
            if elapsed:
                idle = self.cluster.idle()
                self._idle += elapsed * idle
                if self._waiting:
                    self._idle_waiting += elapsed * idle
                    self._somebody_waited += elapsed
                self._idle_busy += elapsed * self.cluster.idle_on_busy_nodes()
        self._measured = now

    def _note(self, process: Process, sign: int) -> None:
        if self._occupancy is None:
            return
        now, job = self._clock.now, process.job.id
        if process.local:
            self._occupancy.append((now, process.node, job, sign * process.local))
        for lender in process.lenders:
            self._occupancy.append((now, lender, job, sign))


def _touched(processes: Iterable[Process]) -> dict[int, None]:
    """Every node that these processes are on, or use."""
    nodes: dict[int, None] = {}
    for process in processes:
        nodes[process.node] = None
        nodes.update(dict.fromkeys(process.lenders))
    return nodes
