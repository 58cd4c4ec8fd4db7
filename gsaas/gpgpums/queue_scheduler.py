"""Who goes next: the queue of the database, put to the pool, the policies and the quotas as they are now."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import limits as held
from gsaas.db import queue as queued
from gsaas.db.plain import AnyLease
from gsaas.gpgpums import queue
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool_cache import Inventory
from gsaas.gpgpums.queue import Waiting
from gsaas.limits import Limits
from gsaas.limits import base as limits
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.request import Request

LOG = logging.getLogger(__name__)

NOBODY = ""
"""The id of a lease that is not stored yet, and of a project that nobody has to ask about."""


class QueueScheduler:
    """Answers from *inventory*, which somebody else keeps up to date. Not thread-safe.

    *policy* returns the one that a request names, or the default; *quotas* are those of whoever waits; with
    *backfill* some may go before others; *client_timeout* is how long a client that promised to ask may be silent, in
    seconds.
    """

    def __init__(
        self,
        inventory: Inventory,
        policy: Callable[[Connection, str | None], Policy],
        quotas: Limits,
        *,
        backfill: bool,
        client_timeout: float,
    ) -> None:
        self._inventory = inventory
        self._policy = policy
        self._quotas = quotas
        self._backfill = backfill
        self._client_timeout = client_timeout

    def next(
        self, connection: Connection, new: Waiting | None = None
    ) -> tuple[Waiting, Placement] | None:
        """Who goes next, also of those before a *new* request, which is the last of its priority.

        As a rule only the head is asked: reading everybody takes longer.
        """
        pool, quotas = self._inventory.pool, self._quota_check(connection)
        passed = False

        def allows(one: Waiting, placement: Placement | None) -> bool:
            nonlocal passed
            allowed = one is new or quotas(one, placement)
            passed = passed or not allowed
            return allowed

        head = queued.head(connection, self._client_timeout)
        if head is not None:
            first = self._waiting(connection, [head])
            turn = queue.next_turn(pool, first, backfill=False, allows=allows)
            if turn is not None or not (passed or self._backfill):
                return turn
        lowest = None if new is None else new.priority
        waiting = queued.everybody(connection, self._client_timeout, lowest)
        everybody = self._waiting(connection, waiting)
        if new is not None:
            everybody.append(new)
        return queue.next_turn(pool, everybody, backfill=self._backfill, allows=allows)

    def of_new(
        self, connection: Connection, request: Request, policy: Policy, priority: int
    ) -> Placement | Refusal:
        """Where a new request may go although others wait; a refusal if it would go before them."""
        new = Waiting(NOBODY, request, policy, NOBODY, priority, datetime.datetime.max)
        turn = self.next(connection, new)
        if turn is not None and turn[0] is new:
            return turn[1]
        before = queued.length(connection)
        many = "1 request waits" if before == 1 else f"{before} requests wait"
        return Refusal(False, f"it would fit, but {many} in the queue and may not be overtaken")

    def policy_of(self, connection: Connection, waiter: queued.Waiter) -> Policy:
        """The policy that somebody who waits has named, if he still may; else the default."""
        try:
            return self._policy(connection, waiter.policy)
        except (exceptions.UnknownPolicy, exceptions.PolicyNotAllowed) as error:
            LOG.warning("lease %s is placed by the default policy: %s", waiter.id, error)
            return self._policy(connection, None)

    def _waiting(self, connection: Connection, waiters: Sequence[queued.Waiter]) -> list[Waiting]:
        return [
            Waiting(
                waiter.id,
                request_of(waiter),
                self.policy_of(connection, waiter),
                waiter.project_id,
                waiter.priority,
                waiter.queued_at,
            )
            for waiter in waiters
        ]

    def _quota_check(self, connection: Connection) -> queue.Allows:
        """What tells whether quotas allow somebody's turn, as things are in *connection*."""
        used: dict[str, limits.Amounts] = {}

        def allows(one: Waiting, placement: Placement | None) -> bool:
            quota = self._quotas.of(one.project_id)
            if not limits.limited(quota):
                return True
            if one.project_id not in used:
                used[one.project_id] = held.usage(connection, one.project_id)
            wanted = at_least(one.request) if placement is None else asked(placement)
            return limits.fits(quota, used[one.project_id], wanted)

        return allows


def asked(placement: Placement) -> limits.Amounts:
    """How much a lease with these shares adds to what its project holds."""
    return limits.lease([share.memory_mb for share in placement.shares])


def at_least(request: Request) -> limits.Amounts:
    """How much *request* adds at least, wherever it goes: whole GPUs differ in memory."""
    return limits.lease([request.memory_mb or 0] * request.count)


def request_of(lease: AnyLease | queued.Waiter) -> Request:
    """Return what a lease asks for."""
    words = {
        "count": lease.count,
        "mode": lease.mode,
        "memory_mb": lease.memory_mb,
        "locality": lease.locality,
        **lease.requirements,
    }
    return Request.from_dict(words, lease.consumer_host)
