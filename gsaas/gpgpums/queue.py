"""Who goes next: the queue of requests that wait for GPUs. Values in, a decision out.

1. Higher priority goes first; within one priority who came first. Nothing else decides the order.
2. Whoever waits for his project's quota does not wait for GPUs: others pass him, and he keeps his
   place.
3. Nobody else is passed, as long as *backfill* is off: while the head does not fit, nobody moves.
4. With *backfill*, those behind may go if they use no GPU that anybody before them could use, were
   it idle. How long leases will be held is not known, so nothing less is sure to delay nobody.
5. A new request is the last of its priority. It follows the same rules, so that it overtakes
   nobody, even when there are GPUs free.

This module knows no database, clock or socket.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool import Pool
from gsaas.objects.gpu import Gpu, Withheld
from gsaas.objects.placement import Placement
from gsaas.objects.request import Request


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request in the queue."""

    lease_id: str
    request: Request
    policy: Policy
    project_id: str
    priority: int
    queued_at: datetime.datetime

    @property
    def turn(self) -> tuple[int, datetime.datetime, str]:
        """What the queue is sorted by."""
        return -self.priority, self.queued_at, self.lease_id


Allows = Callable[[Waiting, Placement | None], bool]
"""May its project have this (None: whatever it will be) now, as far as quotas go?"""


def anything(_waiting: Waiting, _placement: Placement | None) -> bool:
    """Where there are no quotas."""
    return True


def next_turn(
    pool: Pool, waiting: Iterable[Waiting], *, backfill: bool, allows: Allows = anything
) -> tuple[Waiting, Placement] | None:
    """Say who of *waiting* goes next, and where to; None if nobody can now. *pool* stays as it is."""
    kept: list[Gpu] = []
    """GPUs kept for those before, as they were."""
    known: set[Request] = set()
    try:
        for one in sorted(waiting, key=lambda one: one.turn):
            if not allows(one, None):
                continue
            placement = pool.place(one.request, one.policy)
            if placement is None:
                if not backfill:
                    return None
                if one.request not in known:
                    known.add(one.request)
                    kept += _keep(pool, one.request)
                    if all(gpu.withheld is not None for gpu in pool):
                        return None
            elif allows(one, placement):
                return one, placement
        return None
    finally:
        for gpu in kept:
            pool.put(gpu)


def estimate(position: int, holding: int, held_seconds: Sequence[float]) -> float | None:
    """Seconds until the request at *position* (from 1) has its turn; None if nothing is known.

    *holding* is how many leases hold GPUs now, *held_seconds* how long some of the last ones did.
    By Little's law leases end *holding* / (time each is held) times a second, and every end lets one
    in. It leaves out that requests differ in size, and is the more wrong the more they do.
    """
    if not holding or not held_seconds:
        return None
    return position * median(held_seconds) / holding


def _keep(pool: Pool, request: Request) -> list[Gpu]:
    """Withhold every GPU that *request* could use if nobody else did; return them as they were."""
    kept = [gpu for gpu in pool if gpu.withheld is None and _could_use(request, gpu)]
    for gpu in kept:
        pool.put(gpu.with_(withheld=Withheld.RESERVED))
    return kept


def _could_use(request: Request, gpu: Gpu) -> bool:
    return request.fits(gpu.with_(used_mb=0, exclusive=False))
