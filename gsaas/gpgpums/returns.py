# SPDX-License-Identifier: Apache-2.0
"""Returning what leases have claimed, and ending leases that have nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import claims as claim_rows
from gsaas.db import clock, leases, queue, reservations
from gsaas.db.database import Database
from gsaas.gpgpums.retry import retry
from gsaas.gpgpums.scheduler import GpuScheduler
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Event, Status

Condition = Callable[[Lease], bool]
"""Returns whether a lease, read with its row locked, is still to be released."""

Returned: TypeAlias = tuple[list[tuple[Gpu, Gpu]], int | None]
"""GPUs before and after a return, and its change number; None if it has changed others, too."""

Announce = Callable[[str, str, str | None, Mapping[str, float] | None], None]
"""Lease id, its status now, the policy that chose its GPUs if it has any, and how long each phase took."""


class Returns:
    """Returns claims, tried up to *attempts* times while other transactions are faster.

    *advance_queue* is called after the commit of a return that may let a lease in the queue be served; *announce* is
    called for each lease that has left the queue.
    """

    def __init__(
        self,
        database: Database,
        scheduler: GpuScheduler,
        *,
        attempts: int,
        announce: Announce,
        advance_queue: Callable[[], None],
    ) -> None:
        self._database = database
        self._scheduler = scheduler
        self._attempts = attempts
        self._announce = announce
        self._advance_queue = advance_queue

    def release(self, lease_id: str) -> None:
        """Return all that a lease claims, and record the time. A second call changes nothing.

        Raises `ClaimConflict` if other transactions were faster each time.
        """
        if retry(self._attempts, lambda _: self._release(lease_id)):
            self._advance_queue()

    def terminate(
        self, lease_id: str, detail: str | None = None, if_: Condition = lambda _: True
    ) -> Lease | None:
        """Release a lease that has only claims or a place in the queue; set any other to RELEASING, for the engine.

        *if_* is called with the lease first. If it returns False, nothing changes and the result is None; what it
        raises is raised. Otherwise returns the lease with its new status. Raises `NotFound`, `IllegalTransition`, and
        `ClaimConflict` as `release` does.
        """
        lease, may_serve_queue = retry(
            self._attempts, lambda _: self._terminate(lease_id, detail, if_)
        )
        if lease is not None and lease.status == Status.RELEASED:
            if lease.claimed_at is None:  # it was in the queue until now
                self._announce(lease_id, Status.RELEASED, None, None)
            if may_serve_queue:
                self._advance_queue()
        return lease

    def end(self, lease_id: str, why: str, if_: Condition) -> bool:
        """Release a lease whose client is gone; False if it is being released already, or *if_* returns False."""
        try:
            return self.terminate(lease_id, why, if_) is not None
        except exceptions.IllegalTransition:
            return False

    def _release(self, lease_id: str) -> bool:
        """Return the claims of a lease; return whether a lease in the queue may be served now."""
        with self._database.writing(async_commit=True) as connection:
            try:
                lease = leases.lock(connection, lease_id)
            except exceptions.NotFound:
                return False
            returned, may_serve_queue = self._return_claims(connection, lease)
            if lease.released_at is None:
                released = lease.with_(released_at=clock.now(connection))
                leases.write(connection, released, "released_at")
        self._scheduler.put_returned(*returned)
        return may_serve_queue

    def _terminate(
        self, lease_id: str, detail: str | None, if_: Condition
    ) -> tuple[Lease | None, bool]:
        """Return the lease, None if nothing was done; and whether a lease in the queue may be served now."""
        returned: Returned = ([], None)
        may_serve_queue = False
        with self._database.writing(async_commit=True) as connection:
            before = leases.lock(connection, lease_id)
            if not if_(before):
                return None, False
            lease, event = leases.move(
                connection, before, Event.RELEASE, detail, waiter_seen_at=None
            )
            happened = [event]
            if before.status == Status.QUEUED or before.has_only_claims:
                returned, may_serve_queue = self._return_claims(connection, before)
                lease, event = leases.move(connection, lease.with_(claims=()), Event.FINISH)
                happened.append(event)
            leases.record_events(connection, lease_id, happened)
            columns = leases.moved_columns(before, lease)
            lease = leases.write(connection, lease, "waiter_seen_at", *columns)
        self._scheduler.put_returned(*returned)
        return lease, may_serve_queue

    def _return_claims(self, connection: Connection, lease: Lease) -> tuple[Returned, bool]:
        """Return the claims of a locked lease.

        Returns what has changed, and whether the queue is to be advanced. Where several transactions write at once
        (`Database.one_writer` is false), this one may not see a lease that is just joining the queue, so the queue is
        always advanced.
        """
        may_serve_queue = not self._database.one_writer or not queue.is_empty(connection)
        returned = claim_rows.give_back(connection, lease.id, lease.claims, self._scheduler.known)
        if lease.reservation_id is not None and lease.claims:
            reservations.give_back(connection, lease.id)
            returned = [], None  # they have changed once more
        return returned, may_serve_queue
