# SPDX-License-Identifier: Apache-2.0
"""Decides which lease of the queue in the database is served next, from the pool, the policies and the quotas."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import clock
from gsaas.db import limits as limit_rows
from gsaas.db import queue as queue_rows
from gsaas.db.queue import QueuedLease
from gsaas.gpgpums import queue
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool_cache import PoolCache
from gsaas.gpgpums.queue import QueuedRequest
from gsaas.limits import base as limits
from gsaas.limits.base import Limits
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.request import Request

LOG = logging.getLogger(__name__)

NOT_STORED = ""
"""The lease id and the project id of a request that is only being tried against the queue."""


class QueueScheduler:
    """Schedules the queue on the pool of *cache*, which the caller keeps up to date. Not thread-safe.

    *policy* returns the policy that a request names, or the default; *quotas* are those of leases in the queue; with
    *backfill* some may be served before others; *reserve_for* is for how many seconds one keeps later ones from the
    GPUs that it waits for, -1 for ever; *client_timeout* is how long a client that announced to poll
    may be silent, in seconds.
    """

    def __init__(
        self,
        cache: PoolCache,
        policy: Callable[[Connection, str | None], Policy],
        quotas: Limits,
        *,
        backfill: bool,
        reserve_for: float,
        client_timeout: float,
    ) -> None:
        self._cache = cache
        self._policy = policy
        self._quotas = quotas
        self._backfill = backfill
        self._reserve_for = reserve_for
        self._client_timeout = client_timeout

    def next(
        self, connection: Connection, new: QueuedRequest | None = None
    ) -> tuple[QueuedRequest, Placement] | None:
        """Return the lease that is served next and its placement; None if none can be served now.

        A *new* request is treated as the last of its priority. Only the head of the queue is read if that is
        sufficient, because reading the whole queue takes longer.
        """
        pool, quotas = self._cache.pool, self._quota_check(connection)
        passed_over = False

        def allows(one: QueuedRequest, placement: Placement | None) -> bool:
            nonlocal passed_over
            allowed = one is new or quotas(one, placement)
            passed_over = passed_over or not allowed
            return allowed

        def reserves(one: QueuedRequest) -> bool:
            nonlocal passed_over
            reserving = one is new or self._reserve_for < 0 or one.queued_at >= reserving_since
            passed_over = passed_over or not reserving
            return reserving

        reserving_since = clock.now(connection) - datetime.timedelta(
            seconds=max(0.0, self._reserve_for)
        )
        head = queue_rows.head(connection, self._client_timeout)
        if head is not None:
            first = self._waiting(connection, [head])
            found = queue.choose_next(pool, first, backfill=False, allows=allows, reserves=reserves)
            if found is not None or not (passed_over or self._backfill):
                return found
        lowest = None if new is None else new.priority
        rows = queue_rows.waiting(connection, self._client_timeout, lowest)
        waiting = self._waiting(connection, rows)
        if new is not None:
            waiting.append(new)
        return queue.choose_next(
            pool, waiting, backfill=self._backfill, allows=allows, reserves=reserves
        )

    def place_new(
        self, connection: Connection, request: Request, policy: Policy, priority: int
    ) -> Placement | Refusal:
        """Return where a new request may go although leases wait; a refusal if it would overtake one."""
        new = QueuedRequest(
            NOT_STORED, request, policy, NOT_STORED, priority, datetime.datetime.max
        )
        found = self.next(connection, new)
        if found is not None and found[0] is new:
            return found[1]
        length = queue_rows.length(connection)
        many = "1 request waits" if length == 1 else f"{length} requests wait"
        return Refusal(False, f"it would fit, but {many} in the queue and may not be overtaken")

    def policy_of(self, connection: Connection, lease: QueuedLease) -> Policy:
        """Return the policy that a lease in the queue has named, if requests may still name it; else the default."""
        try:
            return self._policy(connection, lease.policy)
        except (exceptions.UnknownPolicy, exceptions.PolicyNotAllowed) as error:
            LOG.warning("lease %s is placed by the default policy: %s", lease.id, error)
            return self._policy(connection, None)

    def _waiting(self, connection: Connection, rows: Sequence[QueuedLease]) -> list[QueuedRequest]:
        return [
            QueuedRequest(
                lease.id,
                request_of(lease),
                self.policy_of(connection, lease),
                lease.project_id,
                lease.priority,
                lease.queued_at,
            )
            for lease in rows
        ]

    def _quota_check(self, connection: Connection) -> queue.Allows:
        """Return a function that checks whether quotas allow a lease to be served, by the usage in *connection*."""
        used: dict[str, limits.Amounts] = {}

        def allows(one: QueuedRequest, placement: Placement | None) -> bool:
            quota = self._quotas.of(one.project_id)
            if not limits.limited(quota):
                return True
            if one.project_id not in used:
                used[one.project_id] = limit_rows.usage(connection, one.project_id)
            wanted = amounts_at_least(one.request) if placement is None else amounts_of(placement)
            return limits.fits(quota, used[one.project_id], wanted)

        return allows


def amounts_of(placement: Placement) -> limits.Amounts:
    """Return what a lease with this placement adds to the usage of its project."""
    return limits.lease([share.memory_mb for share in placement.shares])


def amounts_at_least(request: Request) -> limits.Amounts:
    """Return the least that *request* adds to the usage of its project: the memory of a whole GPU is not known yet."""
    return limits.lease([request.memory_mb or 0] * request.count)


def request_of(lease: QueuedLease) -> Request:
    """Return what a lease in the queue asks for."""
    fields = {
        "count": lease.count,
        "mode": lease.mode,
        "memory_mb": lease.memory_mb,
        "locality": lease.locality,
        **lease.requirements,
    }
    return Request.from_dict(fields, lease.consumer_host)
