# SPDX-License-Identifier: Apache-2.0
"""The queue of leases that wait for GPUs: joining it, leaving it, and serving those that are next.

After the transaction of a return, or of a lease that joins the queue, is committed, the queue is advanced. Of two
threads that do so at once, the later one sees what both have written, so no lease is missed. Where transactions write
one after the other, a return need not advance a queue that it found empty: a lease that joins later sees what was
returned.
"""

from __future__ import annotations

import datetime
import itertools
import json
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from oslo_utils import timeutils
from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import clock, leases, projects, settings
from gsaas.db import queue as queue_rows
from gsaas.db.database import Database
from gsaas.gpgpums.changes import (
    AdvanceQueue,
    Announce,
    Effect,
    Entry,
    RowsNeededError,
    Serve,
    UnreachableError,
)
from gsaas.gpgpums.committer import Committer, end_each, retry
from gsaas.gpgpums.reservation_keeper import ReservationKeeper
from gsaas.limits import base as limits
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import LeaseEvent, Status
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.request import Request

LOG = logging.getLogger(__name__)

Announcer = Callable[[str, str, str | None, Mapping[str, float] | None], None]
"""Lease id, its status now, the policy that chose its GPUs if it has any, and how long each phase took."""

TIME_OVER = "no GPUs became free for it in the time that it was to wait; ask again, or wait longer"
SILENT = "the client that waited for it has stopped asking"


@dataclass(frozen=True)
class WaitPolicy:
    """How a request waits in the queue."""

    until: datetime.datetime | None = None
    """When it leaves the queue without GPUs, UTC; None: never."""
    attended: bool = False
    """Its client announces to poll, and counts as gone when it stops polling."""
    max_waiting: int = limits.UNLIMITED
    """The most requests of its project that may wait at once, this one included."""
    max_kb: int = limits.UNLIMITED
    """The most KiB of server fields that these may have together."""


@dataclass(frozen=True)
class Clients:
    """Those who wait for leases in the queue."""

    announce: Announcer = lambda *_: None
    """Called for each lease that has left the queue, after the commit."""
    is_waiting: Callable[[str], bool] = lambda _: False
    """Returns whether a request of the lease's own client waits for it in this process."""


class QueueManager:
    """The queue of *database*, which *committer* serves once *keeper* has kept what reservations wait for."""

    def __init__(
        self,
        database: Database,
        committer: Committer,
        keeper: ReservationKeeper,
        clients: Clients,
    ) -> None:
        self._database = database
        self._committer = committer
        self._keeper = keeper
        self._clients = clients
        self._rules = committer.ledger.rules
        self._advancing = threading.Lock()
        self._calls = itertools.count(1)
        self._last_call = self._covered = 0

    def join(
        self,
        lease: Lease,
        request: Request,
        policy_name: str | None = None,
        quota: limits.Amounts = limits.NO_LIMITS,
        policy: WaitPolicy = WaitPolicy(),
    ) -> Lease:
        """Store *lease* as the last of its priority in the queue, and advance the queue. Return it as it is stored.

        Use it for a request that does not fit now, but may fit later. *lease* is new, as for `Claims.claim`.

        Raises `QuotaExceeded` if its project's quota could never allow it, `QueueFull`, `UnknownPolicy`,
        `PolicyNotAllowed`, `BadRequest` if there are too few masked addresses, `QueueTooLarge`.
        """
        if policy_name is not None:
            with self._database.read() as session:
                default = settings.get(session, settings.DEFAULT_POLICY)
            self._rules.policies.named(policy_name, default)
        if lease.has_server:
            self._rules.masked.first(request.count)
        if limits.limited(quota):
            limits.check(quota, limits.NOTHING, limits.at_least(request))
        queued = retry(self._committer.attempts, lambda _: self._join(lease, policy_name, policy))
        self.advance()
        return queued

    def leave(self, lease_id: str, why: str | None = None) -> bool:
        """Take a lease out of the queue and end it; False if it is not in the queue (any more).

        *why* becomes its fault; None if its owner asked for it. Raises `ClaimConflict` if other transactions were
        faster each time.
        """
        left = self._leave(lease_id, why)
        if left:
            self.carry_out([Announce(lease_id, Status.RELEASED), AdvanceQueue()])
        return left

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Do what committed changes call for."""
        for effect in effects:
            if isinstance(effect, Announce):
                self._clients.announce(
                    effect.lease_id, effect.status, effect.policy, effect.timings
                )
            else:
                self.advance()

    def advance(self) -> None:
        """Serve the leases at the front of the queue for as long as the next one fits.

        To be called when something was committed that may let a lease be served. Errors are logged: the engine's next
        audit calls again. Of two calls at once, the later one sees what both callers have written, so no call is lost.
        """
        call = self._last_call = next(self._calls)
        with self._advancing:
            if self._covered >= call:  # another thread has served the queue since this call began
                return
            covers = self._last_call  # calls that began before the queue is read below
            try:
                while effects := self._serve_next():
                    self.carry_out(effects)
            except Exception:
                LOG.exception("the queue stays as it is until the next audit")
            self._covered = covers

    def drop_overdue(self) -> None:
        """End the leases in the queue whose time to wait is over."""
        with self._database.reading() as connection:
            overdue = queue_rows.overdue(connection)
        end_each(overdue, lambda lease_id: self.leave(lease_id, TIME_OVER))

    def drop_hopeless_head(self) -> None:
        """End the first lease of the queue if the cloud can no longer give what it asks for."""
        with self._database.reading() as connection:
            head = queue_rows.head(connection, self._rules.queue.client_timeout)
        if head is not None and (reason := self._hopeless(head)):
            why = f"the cloud can no longer give what it asks for: {reason}"
            end_each([head.id], lambda lease_id: self.leave(lease_id, why))

    def _leave(self, lease_id: str, why: str | None) -> bool:
        def write(_: int) -> bool:
            with self._database.writing() as connection:
                return queue_rows.leave(connection, lease_id, why)

        return retry(self._committer.attempts, write)

    def _hopeless(self, head: queue_rows.QueuedLease) -> str | None:
        """Return why the head of the queue will never fit; None if it may."""
        ledger = self._committer.ledger

        def propose() -> Placement | Refusal:
            with self._database.reading() as connection, ledger.mirror.lock:
                view = ledger.view(connection)
                return view.propose_ignoring_queue(head.request, view.policy_of(head))

        answer = ledger.mirror.following(propose)
        return answer.reason if isinstance(answer, Refusal) and answer.impossible else None

    def _serve_next(self) -> Sequence[Effect]:
        """Give the next lease its GPUs, or end one that no consumer could reach; nothing if none can be served."""
        with self._database.reading() as connection:
            if queue_rows.is_empty(connection):
                return ()
            head = queue_rows.head(connection, self._rules.queue.client_timeout)
        self._keeper.keep_waiting()
        try:
            return self._serve(head).effects
        except UnreachableError as error:
            # If it stayed at the head of the queue, no lease behind it could be served.
            self._leave(error.lease_id, f"it was next in the queue, but {error}")
            return [Announce(error.lease_id, Status.RELEASED)]

    def _serve(self, head: queue_rows.QueuedLease | None) -> Entry:
        """Return the entry of the next lease, which is probably *head*."""
        watch = timeutils.StopWatch()
        watch.start()
        serve = Serve(watch, self._clients.is_waiting)
        if head is not None:
            is_limited = limits.limited(self._rules.quotas.of(head.project_id))
            project_id = head.project_id if is_limited else None
            serve = replace(serve, lease_id=head.id, project_id=project_id)
        while True:
            try:
                return self._committer.commit(serve)
            except RowsNeededError as needed:
                serve = replace(serve, lease_id=needed.lease_id, project_id=needed.project_id)

    def _join(self, lease: Lease, policy_name: str | None, policy: WaitPolicy) -> Lease:
        with self._database.writing() as connection:
            _check_room(connection, lease, policy)
            now = clock.now(connection)
            queued = lease.with_(
                status=Status.QUEUED,
                policy=policy_name,
                queued_at=now,
                wait_until=policy.until,
                waiter_seen_at=now if policy.attended else None,
            )
            leases.insert(connection, queued)
            leases.record_events(connection, lease.id, [LeaseEvent("queue", Status.QUEUED)])
        return queued


def _check_room(connection: Connection, lease: Lease, policy: WaitPolicy) -> None:
    """Raise `QueueFull` or `QueueTooLarge` if the project of *lease* may not store another request in the queue."""
    if policy.max_waiting == limits.UNLIMITED and policy.max_kb == limits.UNLIMITED:
        return
    projects.lock(connection, lease.project_id)
    waiting = queue_rows.length(connection, lease.project_id)
    if policy.max_waiting != limits.UNLIMITED and waiting >= policy.max_waiting:
        raise exceptions.QueueFull(waiting=waiting)
    if policy.max_kb != limits.UNLIMITED and lease.server_request:
        own = len(json.dumps(lease.server_request))
        kb = math.ceil((own + queue_rows.characters(connection, lease.project_id)) / 1024)
        if kb > policy.max_kb:
            raise exceptions.QueueTooLarge(kb=kb, limit=policy.max_kb)
