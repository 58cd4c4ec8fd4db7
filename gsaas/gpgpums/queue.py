# SPDX-License-Identifier: Apache-2.0
"""The rules of the queue of requests that wait for GPUs: which request is served next.

1. Requests with a higher priority come first, and requests of the same priority in the order in which they joined the
   queue. Nothing else decides the order.
2. A request that its project's quota does not allow now is passed over and keeps its place; it does not wait for GPUs.
3. Without *backfill*, no other request is passed over: while the first one does not fit, no request is served.
4. With *backfill*, a later request may be served if it uses no GPU that any request before it could use if that GPU
   were idle. How long leases last is not known of all, so no weaker rule is sure to delay no request.
5. A request keeps later ones from GPUs only for a time. After that it stays where it is, is served as soon as it fits,
   and is passed over while it does not: else a request for all GPUs could bar everybody for ever.
6. A new request is the last of its priority. The same rules apply to it, so it overtakes no request even when GPUs are
   free.

This module knows no database, clock or socket.
"""

from __future__ import annotations

import datetime
import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool import Pool
from gsaas.objects.gpu import Gpu, WithheldReason
from gsaas.objects.placement import Placement, Share
from gsaas.objects.request import Request


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """One request in the queue."""

    lease_id: str
    request: Request
    policy: Policy
    project_id: str
    priority: int
    """A larger one is served sooner."""
    queued_at: datetime.datetime
    duration: int | None = None
    """For how many seconds it is to have its GPUs; None: that is not known, or it has them until `ends_at`."""
    ends_at: datetime.datetime | None = None

    @property
    def sort_key(self) -> tuple[int, datetime.datetime, str]:
        """Return the key by which the queue is sorted."""
        return -self.priority, self.queued_at, self.lease_id


Allows = Callable[[QueuedRequest, Placement | None], bool]
"""Whether the quota of its project allows a request now, with this placement (None: wherever it is placed)."""


BarsOthers = Callable[[QueuedRequest], bool]
"""Whether a request that does not fit keeps later ones from the GPUs that it waits for."""


def no_quotas(_queued: QueuedRequest, _placement: Placement | None) -> bool:
    """Allow every request."""
    return True


def choose_next(
    pool: Pool,
    queue: Iterable[QueuedRequest],
    *,
    backfill: bool,
    allows: Allows = no_quotas,
    bars_others: BarsOthers = lambda _: True,
) -> tuple[QueuedRequest, Placement] | None:
    """Return the request of *queue* that is served next, and its placement; None if none can be served now.

    *pool* is left unchanged.
    """
    barred: list[Gpu] = []
    """GPUs that requests that were passed over wait for, as they were before."""
    barred_for: set[Request] = set()
    unplaceable: set[tuple[Request, Policy]] = set()
    """What was found not to fit, so that of many equal requests one is tried."""
    try:
        for queued in sorted(queue, key=lambda each: each.sort_key):
            if not allows(queued, None):
                continue
            tried = queued.request, queued.policy
            placement = None if tried in unplaceable else pool.place(*tried)
            if placement is None:
                unplaceable.add(tried)
                if not bars_others(queued):
                    continue
                if not backfill:
                    return None
                if queued.request not in barred_for:
                    barred_for.add(queued.request)
                    barred += _bar(pool, queued.request)
                    unplaceable.clear()  # the pool has changed
                    if pool.barred_traits == pool.memory_by_traits.keys():
                        return None  # no GPU is left for later requests
            elif allows(queued, placement):
                return queued, placement
        return None
    finally:
        pool.barred_traits = frozenset()
        for gpu in barred:
            pool.put(gpu)


def estimate(position: int, active_leases: int, durations: Sequence[float]) -> float | None:
    """Return an estimate of the seconds until the request at *position* (from 1) is served; None without any data.

    *active_leases* is the number of leases that have GPUs now; *durations* are for how many seconds recent leases had
    them. By Little's law, *active_leases* / (duration of one) leases end in a second, and the end of each lets one
    request be served. The estimate ignores that requests differ in size; the more they differ, the larger its error.
    """
    if not active_leases or not durations:
        return None
    return position * median(durations) / active_leases


def expected(
    pool: Pool,
    queue: Iterable[QueuedRequest],
    ends: Iterable[tuple[datetime.datetime, Share]],
    now: datetime.datetime,
) -> dict[str, datetime.datetime]:
    """Return when requests of *queue* are served, by lease id, if leases end as *ends* say, and no other lease does.

    Those are left out that wait for a lease without an end. *ends* are what leases have of GPUs, and when they return
    it. Requests are served in order, and each returns its GPUs when it is to end. *pool* is left unchanged. A request
    may be served sooner, because leases may end sooner, and later, because ends are postponed, GPUs fail, and quotas
    and reservations are not looked at.
    """
    waiting = sorted(queue, key=lambda each: each.sort_key, reverse=True)
    numbers = itertools.count()
    coming = [(at, next(numbers), share) for at, share in ends]
    heapq.heapify(coming)
    found: dict[str, datetime.datetime] = {}
    with pool.tentative() as show:
        while coming and waiting:
            at, _, share = heapq.heappop(coming)
            if (gpu := pool.get(share.gpu_uuid)) is not None:
                with suppress(ValueError):  # returned already, after *ends* were read
                    show([gpu.release(share.memory_mb, generation=gpu.generation + 1)])
            if coming and coming[0][0] == at:
                continue  # what ends at once is free at once
            at = max(at, now)
            waiting = [each for each in waiting if each.ends_at is None or each.ends_at > at]
            while waiting and (placement := pool.place(waiting[-1].request, waiting[-1].policy)):
                served = waiting.pop()
                found[served.lease_id] = at
                exclusive = served.request.exclusive
                show(pool.claimed(placement, exclusive=exclusive, newest=0).values())
                end = served.ends_at
                if served.duration is not None:
                    try:
                        end = at + datetime.timedelta(seconds=served.duration)
                    except OverflowError:  # it waits for a lease that ends in the year 9999
                        end = None
                if end is not None:
                    for uuid, size in placement.memory_by_gpu().items():
                        heapq.heappush(coming, (end, next(numbers), Share(uuid, size)))
    return found


def _bar(pool: Pool, request: Request) -> list[Gpu]:
    """Withhold every GPU that *request* could use if it were idle; return those that are withheld one by one.

    They are returned as they were before. Traits with which it could use every GPU are barred as a whole, at a cost
    that does not grow with the number of their GPUs.
    """
    pool.number_slots()
    size, in_part = request.memory_mb or 1, False
    for traits, (least, most) in pool.memory_by_traits.items():
        if traits in pool.barred_traits or not request.wants_traits(traits) or most < size:
            continue
        if least >= size and request.host is None:
            pool.barred_traits |= {traits}
        else:
            in_part = True
    if not in_part:
        return []
    gpus = pool if request.host is None else pool.on_host(request.host)
    usable = [
        gpu
        for gpu in gpus
        if gpu.withheld is None
        and gpu.traits not in pool.barred_traits
        and _could_use(request, gpu)
    ]
    for gpu in usable:
        pool.put(gpu.with_(withheld=WithheldReason.BARRED))
    return usable


def _could_use(request: Request, gpu: Gpu) -> bool:
    return request.fits(gpu.with_(used_mb=0, reserved_mb=0, exclusive=False))
