# SPDX-License-Identifier: Apache-2.0
"""The books as one transaction sees them: the pool, which is up to date, and what is read beside it.

A view is used with the lock of the mirror acquired. What it reads, it reads in the transaction of *connection*.
"""

from __future__ import annotations

import datetime
import logging
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import claims as claim_rows
from gsaas.db import clock, leases, projects
from gsaas.db import queue as queue_rows
from gsaas.db import reservations as reservation_rows
from gsaas.db.queue import QueuedLease
from gsaas.gpgpums import queue
from gsaas.gpgpums.entries import Entry, LockedRows, RowsNeededError
from gsaas.gpgpums.indexed_gpus import Mix
from gsaas.gpgpums.mirror import Mirror, OutdatedPoolError
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool import RecentRequests
from gsaas.gpgpums.queue import QueuedRequest
from gsaas.gpgpums.rules import Rules
from gsaas.limits import base as limits
from gsaas.objects.daemon import TURN
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import Event, LeaseEvent
from gsaas.objects.placement import Placement, Refusal, Share
from gsaas.objects.request import Request
from gsaas.objects.reservation import Reservation

LOG = logging.getLogger(__name__)

NOT_STORED = ""
"""The lease id and the project id of a request that is only being tried against the queue."""


class Mixes:
    """The last *limit* requests of this process; safe to share between threads."""

    def __init__(self, limit: int) -> None:
        self._recent = RecentRequests(limit)
        self._lock = threading.Lock()

    def add(self, request: Request) -> None:
        """Remember *request* for the policies that look at recent requests."""
        with self._lock:
            self._recent.add(request)

    @property
    def mix(self) -> Mix:
        """Return what was requested how often."""
        with self._lock:
            return self._recent.mix


class View:
    """What a plan may look at: what is stored, with the entries that were planned before it."""

    def __init__(
        self,
        connection: Connection,
        mirror: Mirror,
        rules: Rules,
        mixes: Mixes,
        locked: LockedRows,
    ) -> None:
        self.pool = mirror.pool
        self.rules = rules
        self.now = clock.now(connection)
        self._connection = connection
        self._mirror = mirror
        self._mixes = mixes
        self._locked = locked
        self._planned: list[Entry] = []
        self._without: Collection[str] = ()
        self._usage: dict[str, limits.Usage] = {}
        self._is_queue_empty: bool | None = None

    @contextmanager
    def planning(self, without: Collection[str], entries: Sequence[Entry]) -> Iterator[None]:
        """Show *entries* in a block that plans, and propose no GPU of *without*; undo it at the end of the block."""
        self._planned, self._without = [], without
        with self.pool.tentative() as self._show:
            for entry in entries:
                self.add(entry)
            yield

    @property
    def is_partial(self) -> bool:
        """Whether GPUs are missing from what it proposes, because others have locked or changed them."""
        return bool(self._without)

    def add(self, entry: Entry) -> None:
        """Have the view show *entry* to the plans that follow."""
        self._planned.append(entry)
        self._show(entry.gpus.values())

    # The pool, and what it proposes

    @property
    def newest_generation(self) -> int:
        """Return the largest generation of any GPU."""
        planned = (gpu.generation for entry in self._planned for gpu in entry.gpus.values())
        return max([self._mirror.newest_generation, *planned])

    def policy(self, name: str | None) -> Policy:
        """Return the policy that a request names, or the default, after an update of what it looks at.

        Raises `UnknownPolicy`, `PolicyNotAllowed`.
        """
        policy = self.rules.policies.of(name, self._mirror.default_policy)
        if policy.looks_at_utilisation:
            self._mirror.read_utilisation(self._connection)
        if policy.looks_at_mix:
            self.pool.mix = self._mixes.mix
        return policy

    def propose(self, request: Request, policy: Policy, priority: int) -> Placement | Refusal:
        """Return where *request* would go, or why nowhere.

        A request may not overtake leases in the queue of the same or a higher priority. Raises `OutdatedPoolError`
        instead of a refusal unless all GPUs were read lately.
        """
        answer = self.propose_ignoring_queue(request, policy)
        top = self._mirror.top_priority
        if isinstance(answer, Placement) and top is not None and top >= priority:
            return self._place_behind_queue(request, policy, priority)
        return answer

    def propose_ignoring_queue(self, request: Request, policy: Policy) -> Placement | Refusal:
        """Return what `propose` returns if no lease is in the queue."""
        with self.pool.without(self._without):
            answer = self.pool.propose(request, policy)
        if isinstance(answer, Refusal) and not self._mirror.may_refuse:
            raise OutdatedPoolError
        return answer

    # The queue

    def next_in_queue(self) -> tuple[QueuedRequest, Placement] | None:
        """Return the lease that is served next and its placement; None if none can be served now."""
        return self._next_in_queue(None)

    def _next_in_queue(self, new: QueuedRequest | None) -> tuple[QueuedRequest, Placement] | None:
        """Return what `next_in_queue` returns if a *new* request were the last of its priority.

        Only the head of the queue is read if that is sufficient, because reading the whole queue takes longer.
        """
        rules, passed_over = self.rules.queue, False
        bars_others_since = self.now - datetime.timedelta(seconds=max(0.0, rules.reserve_for))

        def allows(one: QueuedRequest, placement: Placement | None) -> bool:
            nonlocal passed_over
            allowed = one is new or self._allows_waiting(one, placement)
            passed_over = passed_over or not allowed
            return allowed

        def bars_others(one: QueuedRequest) -> bool:
            nonlocal passed_over
            bars = one is new or rules.reserve_for < 0 or one.queued_at >= bars_others_since
            passed_over = passed_over or not bars
            return bars

        head = queue_rows.head(self._connection, rules.client_timeout)
        with self.pool.without(self._without):
            if head is not None:
                found = queue.choose_next(
                    *(self.pool, self._waiting([head])),
                    backfill=False,
                    allows=allows,
                    bars_others=bars_others,
                )
                if found is not None or not (passed_over or rules.backfill):
                    return found
            lowest = None if new is None else new.priority
            rows = queue_rows.waiting(self._connection, rules.client_timeout, lowest)
            waiting = [*self._waiting(rows), *([] if new is None else [new])]
            return queue.choose_next(
                *(self.pool, waiting),
                backfill=rules.backfill,
                allows=allows,
                bars_others=bars_others,
            )

    def expected_in_queue(self, most: int) -> dict[str, datetime.datetime]:
        """Return when leases in the queue get GPUs because others end, by id: up to *most* of each are looked at."""
        ends = claim_rows.ending(self._connection, most)
        if not ends:
            return {}
        rows = queue_rows.waiting(self._connection, self.rules.queue.client_timeout)
        return queue.expected(self.pool, self._waiting(rows[:most]), ends, self.now)

    def policy_of(self, lease: QueuedLease | Lease) -> Policy:
        """Return the policy that a lease has named, if requests may still name it; else the default."""
        try:
            return self.policy(lease.policy)
        except (exceptions.UnknownPolicy, exceptions.PolicyNotAllowed) as error:
            LOG.warning("lease %s is placed by the default policy: %s", lease.id, error)
            return self.policy(None)

    def queue_may_wait(self) -> bool:
        """Return whether a lease may wait for what this transaction frees.

        Where several transactions write at once, this one may not see a lease that is just joining the queue.
        """
        if not self._mirror.one_writer:
            return True
        if self._is_queue_empty is None:
            self._is_queue_empty = queue_rows.is_empty(self._connection)
        return not self._is_queue_empty

    def queue_length(self, project_id: str | None = None) -> int:
        """Return how many requests wait, of all projects or of one."""
        return queue_rows.length(self._connection, project_id)

    def queued_characters(self, project_id: str) -> int:
        """Return how many characters the server fields of a project's requests have that wait."""
        return queue_rows.characters(self._connection, project_id)

    def _place_behind_queue(
        self, request: Request, policy: Policy, priority: int
    ) -> Placement | Refusal:
        """Return where a new request may go although leases wait; a refusal if it would overtake one."""
        new = QueuedRequest(
            NOT_STORED, request, policy, NOT_STORED, priority, datetime.datetime.max
        )
        found = self._next_in_queue(new)
        if found is not None and found[0] is new:
            return found[1]
        length = self.queue_length()
        many = "1 request waits" if length == 1 else f"{length} requests wait"
        return Refusal(False, f"it would fit, but {many} in the queue and may not be overtaken")

    def _waiting(self, rows: Sequence[QueuedLease]) -> list[QueuedRequest]:
        return [
            QueuedRequest(
                lease.id,
                lease.request,
                self.policy_of(lease),
                lease.project_id,
                lease.priority,
                lease.queued_at,
                lease.duration,
                lease.ends_at,
            )
            for lease in rows
        ]

    # Quotas

    def usage(self, project_id: str) -> limits.Usage:
        """Return what a project uses, the planned leases included."""
        if project_id not in self._usage:
            counted = projects.claimed_and_reserved(self._connection, project_id)
            self._usage[project_id] = limits.Usage(*counted)
        used = self._usage[project_id]
        claimed = Counter(used.claimed)
        for lease in self._new_leases():
            if lease.project_id == project_id:
                claimed.update(limits.lease([claim.memory_mb for claim in lease.claims]))
        return limits.Usage(claimed, used.reserved)

    def allows(self, project_id: str, placement: Placement) -> bool:
        """Return whether the quota of a project whose lease waits allows it to have *placement* now."""
        quota = self.rules.quotas.of(project_id)
        if not limits.limited(quota):
            return True
        return limits.fits(quota, self.usage(project_id).total, limits.of_placement(placement))

    def _allows_waiting(self, one: QueuedRequest, placement: Placement | None) -> bool:
        if placement is not None:
            return self.allows(one.project_id, placement)
        quota = self.rules.quotas.of(one.project_id)
        return not limits.limited(quota) or limits.fits(
            quota, self.usage(one.project_id).total, limits.at_least(one.request)
        )

    # Locked rows

    def lease(self, lease_id: str, project_id: str | None = None) -> Lease:
        """Return a lease whose row is locked; raises `RowsNeededError` if it is not, nor that of the project."""
        has_quota = project_id and limits.limited(self.rules.quotas.of(project_id))
        if lease_id not in self._locked.leases or (
            has_quota and project_id not in self._locked.projects
        ):
            raise RowsNeededError(lease_id, project_id if has_quota else None)
        return self._locked.leases[lease_id]

    def moved(
        self, lease: Lease, event: Event, detail: str | None = None, **changes: Any
    ) -> tuple[Lease, LeaseEvent]:
        """Return *lease* as it is after *event*, and the event to record; raises `IllegalTransition`."""
        return leases.move(self._connection, lease, event, detail, **changes)

    def reservation(self, reservation_id: str, project_id: str | None = None) -> Reservation:
        """Return a reservation whose row and shares are locked; raises `NotFound`, as for one of another project."""
        found = self._locked.reservations.get(reservation_id)
        if found is None or project_id not in (None, found.project_id):
            raise exceptions.NotFound(
                noun="reservation", id=reservation_id, foreign=found is not None
            )
        return found

    def stored_reservation(self, reservation_id: str, project_id: str) -> Reservation:
        """Return a reservation of a project as it is stored, without a lock; raises `NotFound`."""
        return reservation_rows.get(self._connection, reservation_id, project_id)

    def live_reservations(self) -> Sequence[Reservation]:
        """Return all reservations that have shares."""
        return reservation_rows.live(self._connection)

    def lasting(self, moment: datetime.datetime) -> Mapping[str, int]:
        """Return how many MiB of GPUs, by UUID, leases have that do not end by then."""
        return claim_rows.lasting(self._connection, moment)

    def placings(self) -> int:
        """Return a number that changes with each reservation that is placed."""
        return reservation_rows.placings(self._connection)

    def shares_of(self, lease_id: str) -> Sequence[Share]:
        """Return the shares of a reservation that a lease has, which are locked."""
        return self._locked.shares.get(lease_id, ())

    # Moves

    def may_switch(self, lease_id: str) -> bool:
        """Return whether no GPU that cGPUs of a lease go to is lost by now: whoever loses one has its row locked."""
        return not any(claim.is_lost for claim in leases.get(self._connection, lease_id).others)

    def knows_turns(self, host: str) -> bool:
        """Return whether the monitor of *host* can have two daemons of one cGPU, as its last report says."""
        return TURN in claim_rows.known_by_monitor(self._connection, host)

    # Ports and addresses

    def daemon_ports_on(self, host: str) -> Collection[int]:
        """Return the TCP ports of all daemons on *host*, those of planned claims included."""
        return [
            *claim_rows.daemon_ports(self._connection, host),
            *(
                claim.daemon_port
                for claim in (*self._new_claims(), *self._others())
                if claim.daemon_host == host and claim.daemon_port is not None
            ),
        ]

    def masked_of_project(self, host: str, project_id: str) -> int:
        """Return how many masked addresses a project has on *host*, those of planned claims included."""
        planned = sum(
            claim.masked_host == host
            for lease in self._new_leases()
            if lease.project_id == project_id
            for claim in lease.claims
        )
        return claim_rows.masked_ips_of(self._connection, host, project_id) + planned

    def masked_on(self, host: str) -> Collection[str]:
        """Return the masked addresses that consumers on *host* use, those of planned claims included."""
        return [
            *claim_rows.masked_ips(self._connection, host),
            *(
                claim.masked_ip
                for claim in self._new_claims()
                if claim.masked_host == host and claim.masked_ip is not None
            ),
        ]

    def _new_leases(self) -> Iterator[Lease]:
        """Yield the planned leases that get claims, as they are then."""
        for entry in self._planned:
            if entry.lease is not None and entry.claims:
                yield entry.lease

    def _others(self) -> Iterator[Claim]:
        """Yield the claims that planned leases have besides those on their own GPUs."""
        for entry in self._planned:
            if entry.lease is not None:
                yield from entry.lease.others

    def _new_claims(self) -> Iterator[Claim]:
        return (claim for lease in self._new_leases() for claim in lease.claims)
