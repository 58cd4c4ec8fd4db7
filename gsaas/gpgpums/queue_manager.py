# SPDX-License-Identifier: Apache-2.0
"""The queue of leases that wait for GPUs: joining it, and leaving it without GPUs."""

from __future__ import annotations

from typing import cast

from gsaas import exceptions
from gsaas.db import queue as queue_rows
from gsaas.db import settings
from gsaas.db.database import Database
from gsaas.gpgpums.changes import Join, Terminate, WaitPolicy
from gsaas.gpgpums.committer import Committer, end_each
from gsaas.limits import base as limits
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.placement import Refusal
from gsaas.objects.request import Request

TIME_OVER = "no GPUs became free for it in the time that it was to wait"
SILENT = "the client that waited for it has stopped asking"


class QueueManager:
    """The queue of *database*, which *committer* changes and serves."""

    def __init__(self, database: Database, committer: Committer) -> None:
        self._database = database
        self._committer = committer
        self._rules = committer.ledger.rules

    def join(
        self,
        lease: Lease,
        request: Request,
        policy_name: str | None = None,
        quota: limits.Amounts = limits.NO_LIMITS,
        policy: WaitPolicy | None = None,
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
            self._rules.masked.check(request.count)
        if limits.limited(quota):
            limits.check(quota, limits.NOTHING, limits.at_least(request))
        return cast(
            Lease, self._committer.commit(Join(lease, policy_name, policy or WaitPolicy())).lease
        )

    def leave(self, lease_id: str, why: str | None = None) -> bool:
        """Take a lease out of the queue and end it; False if it is not in the queue (any more).

        *why* becomes its fault; None if its owner asked for it. Raises `ClaimConflict` if other transactions were
        faster each time.
        """
        leave = Terminate(lease_id, why, lambda lease: lease.status == Status.QUEUED)
        try:
            return self._committer.commit(leave).lease is not None
        except exceptions.NotFound:
            return False

    def advance(self) -> None:
        """Serve the leases at the front of the queue for as long as the next one fits, as `Committer` describes."""
        self._committer.advance_queue()

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

    def _hopeless(self, head: queue_rows.QueuedLease) -> str | None:
        """Return why the head of the queue will never fit; None if it may."""
        answer = self._committer.ledger.look(
            lambda view: view.propose_ignoring_queue(head.request, view.policy_of(head))
        )
        return answer.reason if isinstance(answer, Refusal) and answer.impossible else None
