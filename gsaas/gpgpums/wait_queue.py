# SPDX-License-Identifier: Apache-2.0
"""The queue of leases that wait for GPUs: joining it, leaving it, and serving those that are next."""

from __future__ import annotations

import datetime
import itertools
import json
import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from oslo_db import exception as db_exception
from oslo_utils import timeutils
from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import claims as claim_rows
from gsaas.db import clock, leases, settings
from gsaas.db import limits as limit_rows
from gsaas.db import queue as queue_rows
from gsaas.db.database import Database, OvertakenError
from gsaas.db.leases import LeaseEvent
from gsaas.db.models import change_number
from gsaas.gpgpums.allocation import UNREACHABLE, Allocator
from gsaas.gpgpums.queue_scheduler import amounts_at_least, amounts_of, request_of
from gsaas.gpgpums.retry import retry
from gsaas.gpgpums.returns import Announce
from gsaas.gpgpums.scheduler import GpuScheduler
from gsaas.limits import base as limits
from gsaas.limits.base import Limits
from gsaas.objects import timings
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.request import Request

LOG = logging.getLogger(__name__)

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


class _Departure(NamedTuple):
    """A lease that has left the queue, as it is announced."""

    lease_id: str
    status: str
    policy: str | None = None
    timings: Mapping[str, float] | None = None


class WaitQueue:
    """The queue of the database, served from the pool of *scheduler*.

    *attempts* is how often the next lease is tried while other transactions are faster; *quotas* are those of leases in
    the queue; *announce* is called for each lease that has left the queue, after the commit; *is_client_waiting*
    returns whether a request of the lease's own client waits for it in this process; *keep_reserved* is called before
    a lease is served, so that reservations keep what they wait for.
    """

    def __init__(
        self,
        database: Database,
        scheduler: GpuScheduler,
        allocator: Allocator,
        quotas: Limits,
        *,
        attempts: int,
        client_timeout: float,
        announce: Announce,
        is_client_waiting: Callable[[str], bool],
        keep_reserved: Callable[[], None],
    ) -> None:
        self._database = database
        self._scheduler = scheduler
        self._allocator = allocator
        self._quotas = quotas
        self._attempts = attempts
        self._client_timeout = client_timeout
        self._announce = announce
        self._is_client_waiting = is_client_waiting
        self._keep_reserved = keep_reserved
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
            self._scheduler.policies.named(policy_name, default)
        if lease.has_server:
            self._allocator.check_masked(request.count)
        if limits.limited(quota):
            limits.check(quota, limits.NOTHING, amounts_at_least(request))
        queued = retry(self._attempts, lambda _: self._join(lease, policy_name, policy))
        self.advance()
        return queued

    def leave(self, lease_id: str, why: str | None = None) -> bool:
        """Take a lease out of the queue and end it; False if it is not in the queue (any more).

        *why* becomes its fault; None if its owner asked for it. Raises `ClaimConflict` if other transactions were
        faster each time.
        """
        left = self._leave(lease_id, why)
        if left:
            self._announce(lease_id, Status.RELEASED, None, None)
            self.advance()
        return left

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
                while departure := self._serve_next():
                    self._announce(*departure)
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
            head = queue_rows.head(connection, self._client_timeout)
        if head is not None and (reason := self._hopeless(head)):
            why = f"the cloud can no longer give what it asks for: {reason}"
            end_each([head.id], lambda lease_id: self.leave(lease_id, why))

    def _leave(self, lease_id: str, why: str | None) -> bool:
        def write(_: int) -> bool:
            with self._database.writing() as connection:
                return queue_rows.leave(connection, lease_id, why)

        return retry(self._attempts, write)

    def _hopeless(self, head: queue_rows.QueuedLease) -> str | None:
        """Return why the head of the queue will never fit; None if it may."""
        scheduler = self._scheduler

        def propose() -> Placement | Refusal:
            with self._database.reading() as connection:
                scheduler.refresh(connection)
                policy = scheduler.queue.policy_of(connection, head)
                return scheduler.propose_ignoring_queue(connection, request_of(head), policy)

        answer = scheduler.with_pool(propose)
        return answer.reason if isinstance(answer, Refusal) and answer.impossible else None

    def _serve_next(self) -> _Departure | None:
        """Give the next lease its GPUs, or end one that no consumer could reach; None if no lease can be served."""

        changed: set[str] = set()
        """GPUs that other transactions changed first."""

        def write(attempt: int) -> Lease | None:
            with self._database.reading(snapshot=False) as connection:
                if queue_rows.is_empty(connection):
                    return None
            self._keep_reserved()
            try:
                return self._scheduler.with_pool(lambda: self._try_next(attempt > 0, changed))
            except OvertakenError as error:
                if error.gpu is not None:
                    changed.add(error.gpu)
                raise

        try:
            lease = retry(self._attempts, write)
        except _UnreachableError as error:
            # If it stayed at the head of the queue, no lease behind it could be served.
            self._leave(error.lease_id, f"it was next in the queue, but {error}")
            return _Departure(error.lease_id, Status.RELEASED)
        if lease is None:
            return None
        return _Departure(lease.id, lease.status, lease.policy, lease.timings)

    def _try_next(self, overtaken: bool, changed: Collection[str]) -> Lease | None:
        """Claim GPUs for the next lease in one transaction; raises `OvertakenError`, `_UnreachableError`.

        The GPUs *changed* are read again in any case.
        """
        scheduler = self._scheduler
        watch = timeutils.StopWatch()
        watch.start()
        with self._database.writing() as connection:
            if overtaken:
                claim_rows.wait_for_claims(connection)
            scheduler.refresh(connection)
            scheduler.reread(connection, changed)
            found = scheduler.queue.next(connection)
            if found is None:
                return None
            waiting, placement = found
            if not scheduler.is_confirmed(connection, waiting.request, placement):
                scheduler.read_compute_hosts(connection)
                raise OvertakenError
            quota = self._quotas.of(waiting.project_id)
            if limits.limited(quota):
                # Only now is the project known. `Claims` locks it before it waits for claims, so the two may end in a
                # deadlock, which the database reports and `retry` repeats.
                limit_rows.lock_project(connection, waiting.project_id)
            lease = leases.lock(connection, waiting.lease_id)
            if lease.status != Status.QUEUED or lease.queued_at is None:
                raise OvertakenError  # it left the queue after it was read, before its row was locked
            if limits.limited(quota):
                used = limit_rows.usage(connection, waiting.project_id)
                if not limits.fits(quota, used, amounts_of(placement)):
                    raise OvertakenError
            waited = (clock.now(connection) - lease.queued_at).total_seconds()
            lease = lease.with_(timings={**(lease.timings or {}), timings.QUEUE: waited})
            # Its open request is answered now. But the client may have lost a request that can be repeated: it stays
            # watched until the answer is on its way.
            if lease.request_key is None and self._is_client_waiting(lease.id):
                lease = lease.with_(waiter_seen_at=None)
            try:
                planned = self._allocator.plan(
                    connection, lease, waiting.request, placement, waiting.policy, watch
                )
            except UNREACHABLE as error:
                raise _UnreachableError(lease.id, str(error)) from error
            lease = self._allocator.write(connection, planned)
            number = change_number(connection)
        scheduler.put(planned.after.values(), number)
        return lease

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


def end_each(ids: Iterable[str], end: Callable[[str], bool]) -> list[str]:
    """Call *end* for each lease or reservation, and return those for which it returns True.

    For audits: an error of one is logged and does not keep the others from their end. The next audit tries again.
    Raises only `oslo_db.exception.DBConnectionError`, after which the others would fail as well.
    """
    ended = []
    for one in ids:
        try:
            if end(one):
                ended.append(one)
        except db_exception.DBConnectionError:
            raise
        except Exception:
            LOG.exception("%s stays as it is until the next audit", one)
    return ended


def _check_room(connection: Connection, lease: Lease, policy: WaitPolicy) -> None:
    """Raise `QueueFull` or `QueueTooLarge` if the project of *lease* may not store another request in the queue."""
    if policy.max_waiting == limits.UNLIMITED and policy.max_kb == limits.UNLIMITED:
        return
    limit_rows.lock_project(connection, lease.project_id)
    waiting = queue_rows.length(connection, lease.project_id)
    if policy.max_waiting != limits.UNLIMITED and waiting >= policy.max_waiting:
        raise exceptions.QueueFull(waiting=waiting)
    if policy.max_kb != limits.UNLIMITED and lease.server_request:
        own = len(json.dumps(lease.server_request))
        kb = math.ceil((own + queue_rows.characters(connection, lease.project_id)) / 1024)
        if kb > policy.max_kb:
            raise exceptions.QueueTooLarge(kb=kb, limit=policy.max_kb)


class _UnreachableError(Exception):
    """There are GPUs for the next lease, but its consumer could not reach them."""

    def __init__(self, lease_id: str, why: str) -> None:
        super().__init__(why)
        self.lease_id = lease_id
