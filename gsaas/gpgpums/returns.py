"""Returning what leases have claimed, and ending leases that have nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oslo_utils import timeutils
from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import claims as claim_rows
from gsaas.db import leases
from gsaas.db.database import Database
from gsaas.gpgpums.retry import retry
from gsaas.gpgpums.scheduler import GpuScheduler
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Event, Status

Condition = Callable[[Lease], bool]

Announce = Callable[[str, str, str | None, Mapping[str, float] | None], None]
"""Lease id, its status now, the policy that chose its GPUs if it has any, and how long each phase took."""


class Returns:
    """Returns claims, tried up to *attempts* times while other transactions are faster.

    *advance_queue* is called once a return is committed that may let a lease in the queue be served; *announce* is
    told of leases that have left the queue.
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
        """Return all that a lease claims, and note when. A second time changes nothing.

        Raises `ClaimConflict` if other transactions were faster each time.
        """
        if retry(self._attempts, lambda _: self._release(lease_id)):
            self._advance_queue()

    def terminate(
        self, lease_id: str, detail: str | None = None, if_: Condition = lambda _: True
    ) -> Lease | None:
        """Release a lease: wholly if it has nothing but claims or a place in the queue, else as far as RELEASING.

        *if_* looks at the lease first, and may raise what it likes; returns None, and changes nothing, if it says no.
        Returns the lease as it is then. Raises `NotFound`, `IllegalTransition`, and `ClaimConflict` as `release`.
        """
        lease, may_serve_queue = retry(
            self._attempts, lambda _: self._terminate(lease_id, detail, if_)
        )
        if lease is not None and lease.status == Status.RELEASED:
            if lease.claimed_at is None:
                self._announce(lease_id, Status.RELEASED, None, None)
            if may_serve_queue:
                self._advance_queue()
        return lease

    def end(self, lease_id: str, why: str, if_: Condition) -> bool:
        """Release a lease whose client is gone; False if it is being released already, or *if_* says no."""
        try:
            return self.terminate(lease_id, why, if_) is not None
        except exceptions.IllegalTransition:
            return False

    def _release(self, lease_id: str) -> bool:
        """Return the claims of a lease; return whether a lease in the queue may be served now."""
        with self._database.writing(linger=True) as connection:
            try:
                lease = leases.lock(connection, lease_id)
            except exceptions.NotFound:
                return False
            changed, may_serve_queue = self._give_back(connection, lease)
            if lease.released_at is None:
                released = lease.with_(released_at=timeutils.utcnow())
                leases.write(connection, released, "released_at")
        self._scheduler.put_returned(changed)
        return may_serve_queue

    def _terminate(
        self, lease_id: str, detail: str | None, if_: Condition
    ) -> tuple[Lease | None, bool]:
        """Return the lease, None if nothing was done; and whether a lease in the queue may be served now."""
        changed: list[tuple[Gpu, Gpu]] = []
        may_serve_queue = False
        with self._database.writing(linger=True) as connection:
            before = leases.lock(connection, lease_id)
            if not if_(before):
                return None, False
            lease, event = leases.move(
                connection, before, Event.RELEASE, detail, waiter_seen_at=None
            )
            happened = [event]
            if before.status == Status.QUEUED or before.has_only_claims:
                changed, may_serve_queue = self._give_back(connection, before)
                lease, event = leases.move(connection, lease.with_(claims=()), Event.FINISH)
                happened.append(event)
            leases.record_events(connection, lease_id, happened)
            lease = leases.write(connection, lease, "status", "released_at", "waiter_seen_at")
        self._scheduler.put_returned(changed)
        return lease, may_serve_queue

    def _give_back(
        self, connection: Connection, lease: Lease
    ) -> tuple[list[tuple[Gpu, Gpu]], bool]:
        """Return the claims of a locked lease.

        Returns the GPUs that are as the pool has them, before and after; and whether the queue is to be advanced.
        Where several transactions write at once (`Database.one_writer` is false), a lease may join the queue unseen
        by this one, so the queue is always looked at.
        """
        newest, queue_is_empty = claim_rows.summary(connection)
        changed = claim_rows.give_back(
            connection, lease.id, lease.claims, self._scheduler.known, newest
        )
        return changed, not queue_is_empty or not self._database.one_writer
