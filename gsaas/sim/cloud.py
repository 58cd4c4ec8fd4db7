"""A cloud with GPUs replays a history: GPGPUMS's own pool, queue and policies, another clock.

Whoever finds no room waits in the queue as in the service, first come first served or with backfill. A request that the
cloud could never serve is refused at once. Locality `local` has all cGPUs of a request on one host, as if a VM there
could use only those; `any` has them anywhere.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from gsaas.gpgpums import policies
from gsaas.gpgpums.pool import Pool
from gsaas.gpgpums.queue import QueuedRequest, choose_next
from gsaas.objects.gpu import Gpu
from gsaas.objects.placement import Placement
from gsaas.objects.request import ANY, LOCAL, Request
from gsaas.sim.clock import Clock
from gsaas.sim.history import Demand

ARRIVE, END = 1, 0
"""At the same moment, who leaves goes first."""
EPOCH = datetime.datetime(2000, 1, 1)
LOOK_AHEAD = 64
"""With backfill, so many of the queue are looked at."""


@dataclass(frozen=True, slots=True)
class Site:
    """So many *hosts* with so many *gpus* each, of so many MiB."""

    hosts: int
    gpus: int
    memory_mb: int
    model: str = ""

    def pool(self) -> Pool:
        names = [f"host{number:04}" for number in range(self.hosts)]
        return Pool(
            (
                Gpu(f"{name}-{index}", name, index, self.memory_mb, model=self.model)
                for name in names
                for index in range(self.gpus)
            ),
            names,
        )


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one request. Seconds; a request that was refused has no start."""

    id: int
    arrival: float
    start: float | None
    end: float | None
    count: int
    hosts: int
    """That its cGPUs were on."""

    @property
    def wait(self) -> float | None:
        return None if self.start is None else self.start - self.arrival


@dataclass(frozen=True)
class Sample:
    """The cloud from one moment to the next."""

    at: float
    used_mb: int
    busy_gpus: int
    queue: int


@dataclass(frozen=True)
class Outcome:
    """One run. *occupancy* is (time, GPU, request, change in MiB)."""

    site: Site
    policy: str
    locality: str
    records: Sequence[Record]
    samples: Sequence[Sample]
    occupancy: Sequence[tuple[float, str, int, int]]
    events: int

    @property
    def refused(self) -> int:
        return sum(record.start is None for record in self.records)

    @property
    def waits(self) -> list[float]:
        """Of those that were served, sorted."""
        return sorted(record.wait for record in self.records if record.wait is not None)

    @property
    def utilisation(self) -> float:
        """Percent of all GPU memory that was claimed, from the first arrival to the last end."""
        used = span = 0.0
        for sample, following in zip(self.samples, self.samples[1:], strict=False):
            used += sample.used_mb * (following.at - sample.at)
            span += following.at - sample.at
        total = self.site.hosts * self.site.gpus * self.site.memory_mb
        return 100 * used / (span * total) if span else 0.0


class Simulation:
    """One run. *check*, if given, is called with the pool after every event."""

    def __init__(
        self,
        demands: Sequence[Demand],
        site: Site,
        *,
        policy: str = "least-load-fit",
        locality: str = ANY,
        backfill: bool = False,
        check: Callable[[Pool], None] | None = None,
    ) -> None:
        self.pool = site.pool()
        self._site = site
        self._policy = policies.load(policy)
        self._locality = locality
        self._backfill = backfill
        self._clock = Clock()
        self._check = None if check is None else lambda: check(self.pool)
        self._demands = {demand.id: demand for demand in demands}
        self._waiting: dict[int, QueuedRequest] = {}
        self._records: dict[int, Record] = {}
        self._samples: list[Sample] = []
        self._occupancy: list[tuple[float, str, int, int]] = []
        self._used = self._busy = 0
        for demand in demands:
            self._clock.at(demand.arrival, self._arrive, demand, priority=ARRIVE)

    def run(self) -> Outcome:
        """Replay the history to its end."""
        self._clock.run(self._check)
        records = [self._records[number] for number in sorted(self._records)]
        return Outcome(
            self._site,
            self._policy.name,
            self._locality,
            records,
            self._samples,
            self._occupancy,
            self._clock.events,
        )

    def _arrive(self, demand: Demand) -> None:
        request = Request(demand.count, demand.mode, demand.memory_mb, self._locality)
        if not self._could_ever(request):
            self._records[demand.id] = Record(
                demand.id, demand.arrival, None, None, demand.count, 0
            )
            return
        queued = EPOCH + datetime.timedelta(seconds=demand.arrival)
        self._waiting[demand.id] = QueuedRequest(
            str(demand.id), request, self._policy, demand.project, 0, queued
        )
        self._advance()

    def _could_ever(self, request: Request) -> bool:
        """Would it fit if nobody else were there?"""
        size = request.memory_mb or self._site.memory_mb
        each = self._site.gpus * (self._site.memory_mb // size)
        hosts = 1 if request.locality == LOCAL else self._site.hosts
        return request.count <= each * hosts

    def _advance(self) -> None:
        """Let everybody go whose turn it is."""
        ahead = LOOK_AHEAD if self._backfill else 1
        while self._waiting:
            first = list(islice(self._waiting.values(), ahead))
            turn = choose_next(self.pool, first, backfill=self._backfill)
            if turn is None:
                break
            self._start(*turn)
        self._sample()

    def _start(self, waiting: QueuedRequest, placement: Placement) -> None:
        demand = self._demands[int(waiting.lease_id)]
        del self._waiting[demand.id]
        end = self._clock.now + demand.duration
        hosts = set()
        for share in placement.shares:
            gpu = self.pool.get(share.gpu_uuid)
            hosts.add(gpu.host)
            self._busy += gpu.used_mb == 0
            self.pool.put(
                gpu.claim(
                    share.memory_mb,
                    exclusive=waiting.request.exclusive,
                    generation=gpu.generation + 1,
                )
            )
            self._note(share.gpu_uuid, demand.id, share.memory_mb)
        self._records[demand.id] = Record(
            demand.id, demand.arrival, self._clock.now, end, demand.count, len(hosts)
        )
        self._clock.at(end, self._end, demand.id, placement, priority=END)

    def _end(self, number: int, placement: Placement) -> None:
        for share in placement.shares:
            gpu = self.pool.get(share.gpu_uuid)
            gpu = gpu.release(share.memory_mb, generation=gpu.generation + 1)
            self.pool.put(gpu)
            self._busy -= gpu.used_mb == 0
            self._note(share.gpu_uuid, number, -share.memory_mb)
        self._advance()

    def _note(self, uuid: str, number: int, change: int) -> None:
        self._used += change
        self._occupancy.append((self._clock.now, uuid, number, change))

    def _sample(self) -> None:
        sample = Sample(self._clock.now, self._used, self._busy, len(self._waiting))
        if self._samples and self._samples[-1].at == sample.at:
            self._samples.pop()
        self._samples.append(sample)
