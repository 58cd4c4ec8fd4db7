# SPDX-License-Identifier: Apache-2.0
"""One run: a history replayed on a simulated site, with GPGPUMS's own pool, queue and policies.

As in the service, a request that finds too few free GPUs waits in the queue, in order of arrival or with backfill,
and a request that the site could never serve is refused at once. With locality `local` all cGPUs of a request are on
one host, as if a VM on that host could use only its own GPUs; with `any` they may be on any hosts that the request
itself allows. Hosts that a history names stand for hosts of the site, in the order of their names.
"""

from __future__ import annotations

import datetime
import functools
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool import Pool, RecentRequests
from gsaas.gpgpums.queue import QueuedRequest, choose_next
from gsaas.objects.device_kinds import CUDA
from gsaas.objects.gpu import UNKNOWN, Capability, Gpu, Traits, parse_capability
from gsaas.objects.placement import Placement
from gsaas.objects.request import ANY, LOCAL, ONE, REMOTE, SPREAD, Request
from gsaas.sim import policies
from gsaas.sim.claims import PoolClaims
from gsaas.sim.clock import Clock
from gsaas.sim.history import Demand

ARRIVAL_PRIORITY, END_PRIORITY = 1, 0
"""At equal times leases end before requests arrive, so that an arrival finds their GPUs free."""
EPOCH = datetime.datetime(2000, 1, 1)
"""The queue wants points in time: the simulation begins at this one."""
REQUEST_MIX = 500
"""How many recent requests policies may look at, as the default of [gpgpums]request_mix in the service."""


@dataclass(frozen=True, slots=True)
class Site:
    """The simulated cloud: *hosts* equal hosts with *gpus* GPUs each, every GPU with *memory_mb* MiB.

    *beside* them there may be hosts of other kinds.
    """

    hosts: int
    gpus: int
    memory_mb: int
    model: str = ""
    """Empty: its GPUs suit every request, as do those with an empty *capability*."""
    capability: str = ""
    beside: tuple[Site, ...] = ()

    @property
    def total_hosts(self) -> int:
        """The number of its hosts of all kinds."""
        return sum(part.hosts for part in self._parts)

    @property
    def total_gpus(self) -> int:
        """The number of their GPUs."""
        return sum(part.hosts * part.gpus for part in self._parts)

    @property
    def total_mb(self) -> int:
        """The MiB of all its GPUs."""
        return sum(part.hosts * part.gpus * part.memory_mb for part in self._parts)

    @property
    def names(self) -> list[str]:
        """The names of its hosts, kind by kind."""
        return [f"host{number:04}" for number in range(self.total_hosts)]

    def pool(self) -> Pool:
        """Return a pool of all its GPUs, all of them free."""
        names = iter(self.names)
        gpus = [
            Gpu(
                f"{name}-{index}",
                name,
                index,
                part.memory_mb,
                model=part.model,
                compute_capability=part._capability,
            )
            for part in self._parts
            for name in itertools.islice(names, part.hosts)
            for index in range(part.gpus)
        ]
        return Pool(gpus, self.names)

    def request(self, demand: Demand, locality: str = ANY) -> Request | None:
        """Return what *demand* asks such a site for; None if no number of its hosts could serve that.

        With *locality* `local`, all its cGPUs are on one host.
        """
        try:
            request = demand.request()
            if locality == LOCAL:
                request = request.with_(locality=LOCAL)
        except ValueError:  # spread over hosts, and all on one
            return None
        if not any(part.model for part in self._parts):
            request = request.with_(gpu_model=None)
        if not any(part.capability for part in self._parts):
            request = request.with_(compute_capability=None)
        on_one_host = request.locality == LOCAL or request.hosts == ONE or request.host is not None
        most = max(part._cgpus_on_host(request) for part in self._parts)
        return request if most >= (request.count if on_one_host else 1) else None

    def fits(self, request: Request) -> bool:
        """Return whether *request*, as the method `request` returned it, fits if all GPUs are free."""
        rooms = [
            room
            for part in self._parts
            for room in itertools.repeat(part._cgpus_on_host(request), part.hosts)
        ]
        if request.hosts == SPREAD:
            rooms = [min(room, 1) for room in rooms]
        if request.locality == REMOTE and len(rooms) > 0:
            rooms.remove(min(rooms))  # for the consumer
        return request.count <= sum(rooms)

    @property
    def _parts(self) -> tuple[Site, ...]:
        return (self, *self.beside)

    @property
    def _capability(self) -> Capability | None:
        return parse_capability(self.capability) if self.capability else None

    @property
    def _traits(self) -> Traits:
        return CUDA, self.model, self._capability or UNKNOWN

    def _cgpus_on_host(self, request: Request) -> int:
        """Return how many cGPUs of *request* fit on one idle host of this kind."""
        if not request.wants_traits(self._traits):
            return 0
        return self.gpus * (self.memory_mb // (request.memory_mb or self.memory_mb))


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """What became of one request. Times in seconds; a refused request has neither start nor end."""

    id: int
    arrival: float
    start: float | None
    end: float | None
    count: int
    hosts: int
    """The number of hosts that its cGPUs were on."""

    @property
    def wait(self) -> float | None:
        """Seconds from arrival to start; None if it was refused."""
        return None if self.start is None else self.start - self.arrival


@dataclass(frozen=True)
class Sample:
    """The state of the site from *at*, in seconds, until the next sample."""

    at: float
    used_mb: int
    """MiB claimed, of all GPUs together."""
    busy_gpus: int
    """GPUs with at least one claim."""
    queue: int
    """Requests that wait."""


@dataclass(frozen=True)
class Outcome:
    """The result of one run. *occupancy* has a (time, GPU, request, change in MiB) for each claim and each release."""

    site: Site
    policy: str
    locality: str
    records: Sequence[RequestRecord]
    samples: Sequence[Sample]
    occupancy: Sequence[tuple[float, str, int, int]]
    events: int

    @property
    def refused(self) -> int:
        """The number of requests that were refused."""
        return sum(record.start is None for record in self.records)

    @property
    def waits(self) -> list[float]:
        """Seconds that each served request waited, sorted."""
        return sorted(record.wait for record in self.records if record.wait is not None)

    @property
    def utilisation(self) -> float:
        """Percent of all GPU memory that was claimed: the mean from the first arrival to the last end."""
        used = span = 0.0
        for sample, following in zip(self.samples, self.samples[1:], strict=False):
            used += sample.used_mb * (following.at - sample.at)
            span += following.at - sample.at
        return 100 * used / (span * self.site.total_mb) if span else 0.0


class Simulation:
    """One run of a history on a site.

    *check*, if given, is called with the pool after every event, and *progress* with the percentage of the requests
    that have arrived, whenever that changes.
    """

    def __init__(
        self,
        demands: Sequence[Demand],
        site: Site,
        *,
        policy: str | Policy = "least-load-fit",
        locality: str = ANY,
        backfill: bool = False,
        check: Callable[[Pool], None] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        self._progress = progress
        self._arrived = 0
        self.pool = site.pool()
        self._claims = PoolClaims(self.pool)
        self._recent = RecentRequests(REQUEST_MIX)
        self._site = site
        self._policy = policies.load(policy) if isinstance(policy, str) else policy
        self._locality = locality
        self._backfill = backfill
        self._clock = Clock()
        self._check = None if check is None else lambda: check(self.pool)
        self._demands = {demand.id: demand for demand in demands}
        named = {name for demand in demands for name in (demand.host, demand.consumer_host) if name}
        self._hosts: dict[str | None, str] = dict(
            zip(sorted(named), itertools.cycle(site.names), strict=False)
        )
        # Of equal requests only the first can be served next, so the others need not be tried.
        self._waiting: dict[Request, deque[QueuedRequest]] = {}
        self._fits = functools.cache(site.fits)
        self._records: dict[int, RequestRecord] = {}
        self._samples: list[Sample] = []
        self._occupancy: list[tuple[float, str, int, int]] = []
        self._used_mb = self._busy_gpus = self._queue = 0
        for demand in demands:
            self._clock.schedule(demand.arrival, self._arrive, demand, priority=ARRIVAL_PRIORITY)

    def run(self) -> Outcome:
        """Replay the whole history and return the result."""
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
        self._arrived += 1
        if self._progress is not None:
            before, now = (
                100 * n // len(self._demands) for n in (self._arrived - 1, self._arrived)
            )
            if now > before:
                self._progress(now)
        request = self._site.request(demand, self._locality)
        self._recent.add(demand.request() if request is None else request)
        if request is None or not self._fits(request):
            self._records[demand.id] = RequestRecord(
                demand.id, demand.arrival, None, None, demand.count, 0
            )
            return
        queued = EPOCH + datetime.timedelta(seconds=demand.arrival)
        one = QueuedRequest(
            f"{demand.id:012}", self._on_site(request), self._policy, demand.project, 0, queued
        )
        self._waiting.setdefault(one.request, deque()).append(one)
        self._queue += 1
        self._start_waiting()

    def _on_site(self, request: Request) -> Request:
        """Return *request* with the names of simulated hosts for those that the history names."""
        if request.host is None and request.consumer_host is None:
            return request
        return request.with_(
            host=self._hosts.get(request.host), consumer_host=self._hosts.get(request.consumer_host)
        )

    def _start_waiting(self) -> None:
        """Start every request in the queue that may start now."""
        if self._policy.looks_at_mix:
            self.pool.mix = self._recent.mix
        while self._waiting:
            first = [equal[0] for equal in self._waiting.values()]
            turn = choose_next(self.pool, first, backfill=self._backfill)
            if turn is None:
                break
            self._start(*turn)
        self._take_sample()

    def _start(self, waiting: QueuedRequest, placement: Placement) -> None:
        demand = self._demands[int(waiting.lease_id)]
        equal = self._waiting[waiting.request]
        equal.popleft()
        if not equal:
            del self._waiting[waiting.request]
        self._queue -= 1
        end = self._clock.now + demand.duration
        sizes = placement.memory_by_gpu()
        hosts = set()
        for gpu in self._claims.claim(placement, exclusive=waiting.request.exclusive):
            hosts.add(gpu.host)
            self._busy_gpus += gpu.leases == 1
            self._record_occupancy(gpu.uuid, demand.id, sizes[gpu.uuid])
        self._records[demand.id] = RequestRecord(
            demand.id, demand.arrival, self._clock.now, end, demand.count, len(hosts)
        )
        self._clock.schedule(end, self._end, demand.id, placement, priority=END_PRIORITY)

    def _end(self, number: int, placement: Placement) -> None:
        sizes = placement.memory_by_gpu()
        for gpu in self._claims.release(placement):
            self._busy_gpus -= gpu.leases == 0
            self._record_occupancy(gpu.uuid, number, -sizes[gpu.uuid])
        self._start_waiting()

    def _record_occupancy(self, uuid: str, number: int, change_mb: int) -> None:
        self._used_mb += change_mb
        self._occupancy.append((self._clock.now, uuid, number, change_mb))

    def _take_sample(self) -> None:
        """Add a sample of the present state; of several at the same time only the last is kept."""
        sample = Sample(self._clock.now, self._used_mb, self._busy_gpus, self._queue)
        if self._samples and self._samples[-1].at == sample.at:
            self._samples.pop()
        self._samples.append(sample)
