"""Jobs that hold more or fewer cGPUs while they run: rigid, moldable, malleable, and both of the latter.

1. A job has a least, a preferred and a greatest number of cGPUs (thesis, Table 7.4). Rigid, it starts with the
   greatest; moldable, with as many as are idle between the least and the greatest.
2. Malleable, it asks again and again whether to change (section 6.2, Algorithm 2). While nobody waits it grows towards
   its greatest number, as far as cGPUs are idle; while somebody does, it goes to its preferred one, up or down.
3. A change stops the job for `RESIZE` seconds. A job on *n* cGPUs advances by Amdahl's law.
4. Jobs start in the order of arrival.

Which GPUs they are is of no matter here: a cGPU may be anywhere, so only their number counts.
"""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gsaas.sim.clock import Clock

RESIZE = 1.0
"""Seconds. Ours: the thesis measures from a tenth of a second to some seconds, by the data that moves."""
IDLE_W = 100.0
LOADED_W = 340.0
"""Of a node (section 7.3.4)."""


@dataclass(frozen=True, slots=True)
class Application:
    """How one application scales. It would run *seconds* on its greatest number of cGPUs."""

    name: str
    least: int
    preferred: int
    greatest: int
    period: float
    """Seconds between two questions whether to change."""
    serial: float
    """The part of it that no second cGPU makes faster."""
    seconds: float

    def speed(self, count: int) -> float:
        """Of the job on *count* cGPUs, where 1 is its speed on one (Amdahl)."""
        return 1 / (self.serial + (1 - self.serial) / count)

    @property
    def work(self) -> float:
        """Seconds on one cGPU."""
        return self.seconds * self.speed(self.greatest)


APPLICATIONS = (
    Application("CG", 2, 16, 32, 10, 0.02, 120),
    Application("Jacobi", 2, 4, 32, 10, 0.12, 120),
    Application("N-body", 1, 1, 32, 10, 0.60, 120),
    Application("HPG-aligner", 6, 6, 12, 10, 0.25, 120),
)
"""Limits and periods of Table 7.4; how they scale and how long they run is ours, so that the limits make sense."""


class Kind(enum.StrEnum):
    """How jobs are submitted, and whether they can change (Table 7.5)."""

    FIXED = "fixed"
    MOLDABLE = "pure moldable"
    MALLEABLE = "pure malleable"
    FLEXIBLE = "flexible"

    @property
    def molds(self) -> bool:
        return self in (Kind.MOLDABLE, Kind.FLEXIBLE)

    @property
    def changes(self) -> bool:
        return self in (Kind.MALLEABLE, Kind.FLEXIBLE)


@dataclass(frozen=True, slots=True)
class Job:
    id: int
    arrival: float
    application: Application


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one job."""

    job: int
    arrival: float
    start: float
    end: float
    changes: int
    gpu_seconds: float
    """cGPUs held, times how long."""


@dataclass(frozen=True)
class Outcome:
    records: Sequence[Record]
    makespan: float
    allocated_percent: float
    """Of all GPUs, over the makespan."""
    energy_kwh: float
    events: int


@dataclass(slots=True, eq=False)
class _Running:
    job: Job
    count: int
    start: float
    remaining: float
    """Seconds on one cGPU."""
    since: float
    plan: int = 0
    changes: int = 0
    gpu_seconds: float = 0.0


def jobs(count: int, seed: int, interarrival: float = 10.0) -> list[Job]:
    """Draw jobs, each of any application, with exponential times between them."""
    rng = random.Random(seed)
    now, drawn = 0.0, []
    for number in range(count):
        now += rng.expovariate(1 / interarrival)
        drawn.append(Job(number, now, rng.choice(APPLICATIONS)))
    return drawn


class Simulation:
    """One run on *gpus* GPUs. *check*, if given, is called with the idle and the held ones after every event."""

    def __init__(
        self,
        coming: Iterable[Job],
        gpus: int,
        kind: Kind,
        check: Callable[[int, int], None] | None = None,
    ) -> None:
        self._gpus = self._idle = gpus
        self._kind = kind
        self._clock = Clock()
        self._waiting: deque[Job] = deque()
        self._running: dict[_Running, None] = {}
        self._records: list[Record] = []
        self._check = None
        if check is not None:
            self._check = lambda: check(self._idle, sum(job.count for job in self._running))
        self._held_time = self._measured = 0.0
        for job in coming:
            self._clock.schedule(job.arrival, self._arrive, job, priority=1)

    def run(self) -> Outcome:
        """Let all jobs come and go. `ValueError` for one that there are too few GPUs for."""
        self._clock.run(self._check)
        if self._waiting:
            job = self._waiting[0]
            raise ValueError(f"job {job.id} ({job.application.name}) fits nowhere")
        makespan = max((record.end for record in self._records), default=0.0) or 1.0
        loaded = self._held_time * (LOADED_W - IDLE_W)
        return Outcome(
            sorted(self._records, key=lambda record: record.job),
            makespan,
            100 * self._held_time / (self._gpus * makespan),
            (self._gpus * makespan * IDLE_W + loaded) / 3.6e6,
            self._clock.events,
        )

    def _arrive(self, job: Job) -> None:
        self._measure()
        self._waiting.append(job)
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting:
            application = self._waiting[0].application
            needed = application.least if self._kind.molds else application.greatest
            if needed > self._idle:
                return
            self._start(self._waiting.popleft(), min(self._idle, application.greatest))

    def _start(self, job: Job, count: int) -> None:
        now = self._clock.now
        running = _Running(job, count, now, job.application.work, now)
        self._idle -= count
        self._running[running] = None
        self._plan(running)
        if self._kind.changes:
            self._clock.schedule(
                now + job.application.period, self._reconsider, running, priority=2
            )

    def _reconsider(self, running: _Running) -> None:
        if running not in self._running:
            return
        self._measure()
        wanted = resize(
            running.job.application,
            running.count,
            self._idle,
            waiting=bool(self._waiting),
        )
        if wanted != running.count:
            self._resize(running, wanted)
            self._start_waiting()
        period = running.job.application.period
        self._clock.schedule(self._clock.now + period, self._reconsider, running, priority=2)

    def _resize(self, running: _Running, count: int) -> None:
        self._advance(running)
        self._idle += running.count - count
        running.count = count
        running.changes += 1
        running.gpu_seconds += count * RESIZE
        running.since += RESIZE
        self._plan(running)

    def _plan(self, running: _Running) -> None:
        running.plan += 1
        end = running.since + running.remaining / running.job.application.speed(running.count)
        self._clock.schedule(end, self._finish, running, running.plan)

    def _advance(self, running: _Running) -> None:
        elapsed = self._clock.now - running.since
        running.remaining -= elapsed * running.job.application.speed(running.count)
        running.gpu_seconds += elapsed * running.count
        running.since = self._clock.now

    def _finish(self, running: _Running, plan: int) -> None:
        if running.plan != plan:
            return
        self._measure()
        self._advance(running)
        del self._running[running]
        self._idle += running.count
        job = running.job
        self._records.append(
            Record(
                job.id,
                job.arrival,
                running.start,
                self._clock.now,
                running.changes,
                running.gpu_seconds,
            )
        )
        self._start_waiting()

    def _measure(self) -> None:
        held = self._gpus - self._idle
        self._held_time += held * (self._clock.now - self._measured)
        self._measured = self._clock.now


def resize(application: Application, count: int, idle: int, *, waiting: bool) -> int:
    """Return how many cGPUs a job on *count* of them should have, while *idle* are free (Algorithm 2)."""
    goal = application.preferred if waiting else application.greatest
    return min(goal, count + idle)
