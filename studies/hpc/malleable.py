# SPDX-License-Identifier: Apache-2.0
"""Jobs whose number of cGPUs may vary: rigid, moldable (at the start), malleable (while they run), and flexible (both).

1. A job has a minimum, a preferred and a maximum number of cGPUs (thesis, Table 7.4). A rigid job starts with the
   maximum; a moldable one with as many as are idle between the minimum and the maximum.
2. A malleable job checks every so often whether to resize (section 7.3.2, Algorithm 8). It shrinks to its preferred
   number if a job that waits could start then; that job starts next, before those that wait for longer. Otherwise it
   grows as far as cGPUs are idle, up to its maximum.
3. Each resize stops the job for `RESIZE_SECONDS`. A job on *n* cGPUs progresses by Amdahl's law.
4. Jobs start in the order of arrival, but for those that others made room for.
5. When a job resizes, and to what, is a rule that is passed in: that of chapter 7 here, those of chapter 6 in `dmr`.
   Asynchronously, a job resizes as it decided at the check before; if what it wanted to grow by is not idle any more,
   it waits for `EXPAND_TIMEOUT` in vain.

Only the number of cGPUs is simulated: since a cGPU may be on any host, it does not matter which ones they are.
"""

from __future__ import annotations

import enum
import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from gsaas.sim.clock import Clock, Event

RESIZE_SECONDS = 1.0
"""An assumption: the thesis measures a tenth of a second to some seconds, depending on the data that moves."""
EXPAND_TIMEOUT = 40.0
"""Seconds: the longest that the thesis measures when an expansion waits for nodes that were taken (Table 6.3)."""
IDLE_W = 100.0
LOADED_W = 340.0
"""The power of a node without and with load (section 7.3.4)."""

ARRIVAL_PRIORITY, CHECK_PRIORITY = 1, 2
"""At equal times jobs end first, then others arrive, then running jobs check their size."""


@dataclass(frozen=True, slots=True)
class MalleableApplication:
    """How one application scales. It runs *seconds* seconds on its maximum number of cGPUs."""

    name: str
    minimum: int
    """Of cGPUs, as are *preferred* and *maximum*."""
    preferred: int
    maximum: int
    period: float | None
    """Seconds between two checks whether to resize; None: it checks after every iteration."""
    iterations: int
    serial: float
    """The fraction of it that more cGPUs do not make faster."""
    seconds: float
    submitted: int | None = None
    """With how many a job starts that is not moldable; None: the maximum."""

    def speed(self, count: int) -> float:
        """Return the speed of a job on *count* cGPUs, relative to that on one (Amdahl's law)."""
        return 1 / (self.serial + (1 - self.serial) / count)

    def check_interval(self, count: int) -> float:
        """Return the seconds between two checks of a job on *count* cGPUs."""
        if self.period is not None:
            return self.period
        return self.work / self.speed(count) / self.iterations

    @property
    def work(self) -> float:
        """The seconds of a job on one cGPU."""
        return self.seconds * self.speed(self.maximum)


APPLICATIONS = (
    MalleableApplication("CG", 2, 16, 32, 10, 10_000, 0.02, 120),
    MalleableApplication("Jacobi", 2, 4, 32, 10, 10_000, 0.12, 120),
    MalleableApplication("N-body", 1, 1, 32, None, 50, 0.60, 120),
    MalleableApplication("HPG-aligner", 6, 6, 12, None, 40, 0.25, 120),
)
"""Limits and periods are those of Table 7.4, iterations those of Table 7.3: HPG-aligner has four for each worker, of
which there are two less than processes. Scaling and duration are assumptions, chosen to fit the limits."""


@dataclass(frozen=True, slots=True)
class ResizeRule:
    """When a job resizes, and to what."""

    choose: Callable[[MalleableApplication, int, int, Collection[int]], int]
    """Returns how many cGPUs a job should have, of its application, how many it has, how many are idle, and how many
    each of the jobs that wait needs at least to start."""
    serves_next: bool
    """Whether a job that fits into what a job has given up starts before those that wait for longer."""


class JobKind(enum.StrEnum):
    """Whether jobs are moldable, malleable, neither, or both (Table 7.5)."""

    FIXED = "fixed"
    MOLDABLE = "pure moldable"
    MALLEABLE = "pure malleable"
    FLEXIBLE = "flexible"

    @property
    def is_moldable(self) -> bool:
        """Whether jobs may start with fewer cGPUs than their maximum."""
        return self in (JobKind.MOLDABLE, JobKind.FLEXIBLE)

    @property
    def is_malleable(self) -> bool:
        """Whether jobs may resize while they run."""
        return self in (JobKind.MALLEABLE, JobKind.FLEXIBLE)


@dataclass(frozen=True, slots=True)
class MalleableJob:
    """One job, and when it is submitted, in seconds."""

    id: int
    arrival: float
    application: MalleableApplication


@dataclass(frozen=True, slots=True)
class MalleableJobRecord:
    """What became of one job. Times in seconds."""

    job: int
    arrival: float
    start: float
    end: float
    changes: int
    """How often it resized."""
    gpu_seconds: float
    """The sum over its cGPUs of the seconds that it had them."""


@dataclass(frozen=True)
class MalleableOutcome:
    """The result of one run; the records are sorted by job."""

    records: Sequence[MalleableJobRecord]
    makespan: float
    allocated_percent: float
    """Percent of all GPUs that were allocated, the mean over the makespan."""
    energy_kwh: float
    events: int


@dataclass(slots=True, eq=False)
class _RunningMalleableJob:
    """A job that runs, and its progress."""

    job: MalleableJob
    count: int
    start: float
    remaining: float
    """The seconds that the rest of the job would take on one cGPU, at *updated_at*."""
    updated_at: float
    """In the future while a resize stops the job."""
    end: Event | None = None
    """The event that ends it."""
    next_check: Event | None = None
    """The event at which it checks its size."""
    planned: int | None = None
    """The size that it decided on at its last check, if it is carried out at the next one."""
    changes: int = 0
    gpu_seconds: float = 0.0


def jobs(count: int, seed: int, interarrival: float = 10.0) -> list[MalleableJob]:
    """Draw *count* jobs of random applications, with exponential inter-arrival times of mean *interarrival* seconds."""
    rng = random.Random(seed)
    now, drawn = 0.0, []
    for number in range(count):
        now += rng.expovariate(1 / interarrival)
        drawn.append(MalleableJob(number, now, rng.choice(APPLICATIONS)))
    return drawn


class MalleableSimulation:
    """One run on *gpus* GPUs. *check*, if given, is called after every event with the idle and the allocated ones.

    If *kind* is malleable, only the jobs for which *is_malleable* returns true are resized; without it, all. *rule*
    says how; *asynchronous*, whether what it says is carried out at the next check.
    """

    def __init__(
        self,
        jobs: Iterable[MalleableJob],
        gpus: int,
        kind: JobKind,
        check: Callable[[int, int], None] | None = None,
        is_malleable: Callable[[MalleableJob], bool] = lambda _: True,
        rule: ResizeRule | None = None,
        *,
        asynchronous: bool = False,
    ) -> None:
        self._rule = rule or ALGORITHM_8
        self._asynchronous = asynchronous
        self._is_malleable = is_malleable
        self._gpus = self._idle = gpus
        self._kind = kind
        self._clock = Clock()
        self._waiting: deque[MalleableJob] = deque()
        self._needs: Counter[int] = Counter()
        """cGPUs -> how many of the jobs that wait need so many at least."""
        self._running: dict[_RunningMalleableJob, None] = {}
        self._records: list[MalleableJobRecord] = []
        self._check = None
        if check is not None:
            self._check = lambda: check(self._idle, sum(job.count for job in self._running))
        self._allocated_gpu_seconds = self._measured_at = 0.0
        for job in jobs:
            self._clock.schedule(job.arrival, self._arrive, job, priority=ARRIVAL_PRIORITY)

    def run(self) -> MalleableOutcome:
        """Run all jobs and return the result. Raises `ValueError` for a job that needs more than all GPUs."""
        self._clock.run(self._check)
        if self._waiting:
            job = self._waiting[0]
            raise ValueError(f"job {job.id} ({job.application.name}) fits nowhere")
        makespan = max((record.end for record in self._records), default=0.0) or 1.0
        loaded = self._allocated_gpu_seconds * (LOADED_W - IDLE_W)
        return MalleableOutcome(
            sorted(self._records, key=lambda record: record.job),
            makespan,
            100 * self._allocated_gpu_seconds / (self._gpus * makespan),
            (self._gpus * makespan * IDLE_W + loaded) / 3.6e6,
            self._clock.events,
        )

    def _arrive(self, job: MalleableJob) -> None:
        self._accumulate()
        self._waiting.append(job)
        self._needs[self._needed(job.application)] += 1
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and self._needed(self._waiting[0].application) <= self._idle:
            self._start(self._waiting.popleft())

    def _start_first_that_fits(self) -> None:
        """Start the job for which another one has just made room."""
        for place, job in enumerate(self._waiting):
            if self._needed(job.application) <= self._idle:
                del self._waiting[place]
                self._start(job)
                return

    def _needed(self, application: MalleableApplication) -> int:
        """Return the fewest cGPUs with which a job may start."""
        if self._kind.is_moldable:
            return application.minimum
        return application.submitted or application.maximum

    def _start(self, job: MalleableJob) -> None:
        now, needed = self._clock.now, self._needed(job.application)
        most = job.application.maximum if self._kind.is_moldable else needed
        count = min(self._idle, most)
        self._needs[needed] -= 1
        if not self._needs[needed]:
            del self._needs[needed]
        running = _RunningMalleableJob(job, count, now, job.application.work, now)
        self._idle -= count
        self._running[running] = None
        self._schedule_end(running)
        if self._kind.is_malleable and self._is_malleable(job):
            self._schedule_check(running)

    def _check_size(self, running: _RunningMalleableJob) -> None:
        """Resize a job if it should have another number of cGPUs, and schedule the next check."""
        self._accumulate()
        stopped = 0.0
        if self._asynchronous:
            wanted = running.count if running.planned is None else running.planned
            if wanted - running.count > self._idle:
                wanted, stopped = running.count, EXPAND_TIMEOUT
                self._update_progress(running)
                self._hold(running, stopped)
        else:
            wanted = self._decide(running)
        if wanted != running.count:
            shrinks = wanted < running.count
            self._resize(running, wanted)
            if shrinks and self._rule.serves_next:
                self._start_first_that_fits()
            self._start_waiting()
        if self._asynchronous:
            running.planned = self._decide(running)
        self._schedule_check(running, stopped)

    def _decide(self, running: _RunningMalleableJob) -> int:
        """Return how many cGPUs a job should have now."""
        return self._rule.choose(
            running.job.application, running.count, self._idle, self._needs.keys()
        )

    def _schedule_check(self, running: _RunningMalleableJob, stopped: float = 0.0) -> None:
        """Schedule the next check of a job, which has been stopped for so many seconds."""
        at = self._clock.now + stopped + running.job.application.check_interval(running.count)
        running.next_check = self._clock.schedule(
            at, self._check_size, running, priority=CHECK_PRIORITY
        )

    def _resize(self, running: _RunningMalleableJob, count: int) -> None:
        self._update_progress(running)
        self._idle += running.count - count
        running.count = count
        running.changes += 1
        self._hold(running, RESIZE_SECONDS)

    def _hold(self, running: _RunningMalleableJob, seconds: float) -> None:
        """Stop a job, whose progress is up to date, for so many seconds with the cGPUs that it has."""
        running.gpu_seconds += running.count * seconds
        running.updated_at += seconds
        self._schedule_end(running)

    def _schedule_end(self, running: _RunningMalleableJob) -> None:
        if running.end is not None:
            running.end.cancel()
        end = running.updated_at + running.remaining / running.job.application.speed(running.count)
        running.end = self._clock.schedule(end, self._finish, running)

    def _update_progress(self, running: _RunningMalleableJob) -> None:
        """Subtract the progress since the last update from what remains of a job."""
        elapsed = self._clock.now - running.updated_at  # below 0 while a resize stops it
        running.remaining -= max(elapsed, 0.0) * running.job.application.speed(running.count)
        running.gpu_seconds += elapsed * running.count
        running.updated_at = self._clock.now

    def _finish(self, running: _RunningMalleableJob) -> None:
        self._accumulate()
        if running.next_check is not None:
            running.next_check.cancel()
        self._update_progress(running)
        del self._running[running]
        self._idle += running.count
        job = running.job
        self._records.append(
            MalleableJobRecord(
                job.id,
                job.arrival,
                running.start,
                self._clock.now,
                running.changes,
                running.gpu_seconds,
            )
        )
        self._start_waiting()

    def _accumulate(self) -> None:
        """Add up the allocated GPUs since the last event. To be called before anything changes."""
        allocated = self._gpus - self._idle
        self._allocated_gpu_seconds += allocated * (self._clock.now - self._measured_at)
        self._measured_at = self._clock.now


def choose_size(
    application: MalleableApplication, count: int, idle: int, needs: Iterable[int]
) -> int:
    """Return how many cGPUs a job with *count* should have while *idle* are idle (Algorithm 8).

    *needs* are the cGPUs that each of the jobs that wait needs at least to start.
    """
    surplus = count - application.preferred
    if surplus > 0 and any(need <= idle + surplus for need in needs):
        return application.preferred
    return min(application.maximum, count + idle)


ALGORITHM_8 = ResizeRule(choose_size, serves_next=True)
"""That of section 7.3.2."""
