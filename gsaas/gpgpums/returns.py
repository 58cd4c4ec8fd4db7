# SPDX-License-Identifier: Apache-2.0
"""Returning what leases have claimed, and ending leases that have nothing else.

Returns of several threads are written as groups (`gsaas.gpgpums.group_commit`). A group leaves out leases whose rows,
or whose GPUs' rows, others have locked, so that nobody waits for the locks of another one's lease. A lease that was
left out is returned alone, as is one in a reservation; but if only a GPU of it was locked, it is tried with the next
groups before.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from oslo_db import exception as db_exception
from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import claims as claim_rows
from gsaas.db import clock, leases, queue, reservations
from gsaas.db.database import Database, OvertakenError
from gsaas.db.leases import LeaseEvent
from gsaas.gpgpums.group_commit import GroupCommit, Turn
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


TOGETHER = 3
"""Attempts at a return with others while a GPU of it is locked: mostly by a claim, which is soon written."""


class _Ending(NamedTuple):
    """What is to become of a locked lease."""

    before: Lease
    lease: Lease
    """As it is to be then."""
    columns: Sequence[str]
    """Of the lease that are to be written; none if it stays as it is."""
    events: Sequence[LeaseEvent] = ()
    returns_claims: bool = False


class _Call(NamedTuple):
    """What a thread wants to become of a lease."""

    lease_id: str
    decide: Callable[[Connection, Lease, datetime.datetime], _Ending | None]
    """Returns what is to become at a moment of the locked lease, None for nothing. It writes nothing; what it raises is
    raised to the thread."""
    again: bool = False
    """Whether a group has left it out. Then nobody waits for the lock of its GPU in a group of it alone, either."""


class _GpuLockedError(OvertakenError):
    """The lease could be returned, but for a GPU of it that another transaction has locked."""


class _Written(NamedTuple):
    """What has become of a lease."""

    lease: Lease | None
    """None if nothing was to become of it."""
    may_serve_queue: bool = False
    """Whether the thread is to advance the queue. One thread does so for its whole group."""


class Returns:
    """Returns claims, tried up to *attempts* times while other transactions are faster.

    *advance_queue* is called after the commit of a return that may let a lease in the queue be served; *announce* is
    called for each lease that has left the queue. Groups of this process with the same *turn* wait for each other, but
    not for long.
    """

    def __init__(
        self,
        database: Database,
        scheduler: GpuScheduler,
        *,
        attempts: int,
        announce: Announce,
        advance_queue: Callable[[], None],
        turn: Turn,
    ) -> None:
        self._database = database
        self._scheduler = scheduler
        self._attempts = attempts
        self._announce = announce
        self._advance_queue = advance_queue
        self._group = GroupCommit[_Call, _Written](self._write, turn=turn)

    def release(self, lease_id: str) -> None:
        """Return all that a lease claims, and record the time. A second call changes nothing.

        Raises `ClaimConflict` if other transactions were faster each time.
        """
        try:
            written = self._end(_Call(lease_id, _release))
        except exceptions.NotFound:
            return
        if written.may_serve_queue:
            self._advance_queue()

    def terminate(
        self, lease_id: str, detail: str | None = None, if_: Condition = lambda _: True
    ) -> Lease | None:
        """Release a lease that has only claims or a place in the queue; set any other to RELEASING, for the engine.

        *if_* is called with the lease first. If it returns False, nothing changes and the result is None; what it
        raises is raised. Otherwise returns the lease with its new status. Raises `NotFound`, `IllegalTransition`, and
        `ClaimConflict` as `release` does.
        """

        def decide(connection: Connection, before: Lease, now: datetime.datetime) -> _Ending | None:
            return _terminate(connection, before, now, detail) if if_(before) else None

        lease, may_serve_queue = self._end(_Call(lease_id, decide))
        if lease is not None and lease.status == Status.RELEASED and lease.claimed_at is None:
            self._announce(lease_id, Status.RELEASED, None, None)  # it was in the queue until now
        if may_serve_queue:
            self._advance_queue()
        return lease

    def end(self, lease_id: str, why: str, if_: Condition) -> bool:
        """Release a lease whose client is gone; False if it is being released already, or *if_* returns False."""
        try:
            return self.terminate(lease_id, why, if_) is not None
        except exceptions.IllegalTransition:
            return False

    def _end(self, call: _Call) -> _Written:
        is_grouped = self._database.can_skip_locked
        # Of two attempts or more, the last one is made alone.
        last_grouped = min(TOGETHER, self._attempts - 1) - 1

        def write(attempt: int) -> _Written:
            nonlocal is_grouped
            if not is_grouped:
                return self._group.alone(call)
            is_grouped = False
            try:
                return self._group.together(call._replace(again=attempt > 0))
            except _GpuLockedError:
                is_grouped = attempt < last_grouped
                raise

        return retry(self._attempts, write)

    def _write(self, calls: Sequence[_Call]) -> list[_Written | Exception]:
        """Write what is to become of leases, in one transaction; return the outcome of each call, in order.

        The first one that is written tells whether the queue is to be advanced, for all of them.
        """
        with self._database.writing() as connection:
            locked, gpus = self._lock(connection, calls)
            # The same for all: rows that get the same values share a statement.
            now = clock.now(connection)
            decided = [
                _decide(connection, call, locked.pop(call.lease_id, None), now) for call in calls
            ]
            endings = [one for one in decided if isinstance(one, _Ending)]
            returning = [one.before for one in endings if one.returns_claims]
            returned, may_serve_queue = self._return_claims(connection, returning, gpus)
            leases.record_events_of(connection, {one.before.id: one.events for one in endings})
            written = iter(
                leases.write_all(connection, [(one.lease, one.columns) for one in endings])
            )
        self._scheduler.put_returned(*returned)
        outcomes: list[_Written | Exception] = []
        for one in decided:
            if isinstance(one, _Ending):
                outcomes.append(_Written(next(written), may_serve_queue))
                may_serve_queue = False
            else:
                outcomes.append(_Written(None) if one is None else one)
        return outcomes

    def _lock(
        self, connection: Connection, calls: Sequence[_Call]
    ) -> tuple[dict[str, Lease | _GpuLockedError], dict[str, int] | None]:
        """Lock the leases of *calls* and return them by id; of a group, those that can be returned together.

        For a lease that could be, but for a locked GPU, the error for its caller is returned. The GPUs of a group are
        locked, too, and their generations are returned by UUID; None for a single lease, whose rows are waited for.
        """
        if len(calls) == 1 and not calls[0].again:
            lease_id = calls[0].lease_id
            return {lease_id: leases.lock(connection, lease_id)}, None
        found = leases.lock_free(connection, {call.lease_id for call in calls})
        found = [lease for lease in found if lease.reservation_id is None]
        wanted = {claim.gpu_uuid for lease in found for claim in lease.claims}
        gpus = claim_rows.lock_free(connection, wanted)
        return {
            lease.id: lease
            if all(claim.gpu_uuid in gpus for claim in lease.claims)
            else _GpuLockedError()
            for lease in found
        }, gpus

    def _return_claims(
        self,
        connection: Connection,
        returning: Sequence[Lease],
        gpus: Mapping[str, int] | None,
    ) -> tuple[Returned, bool]:
        """Return the claims of locked leases; *gpus* are the generations of their GPUs, if these are locked, too.

        Returns what has changed, and whether the queue is to be advanced. Where several transactions write at once
        (`Database.one_writer` is false), this one may not see a lease that is just joining the queue, so the queue is
        always advanced.
        """
        if not returning:
            return ([], None), False
        may_serve_queue = not self._database.one_writer or not queue.is_empty(connection)
        claims = [claim for lease in returning for claim in lease.claims]
        returned = claim_rows.give_back(connection, claims, self._scheduler.known, gpus)
        for lease in returning:
            if lease.reservation_id is not None and lease.claims:
                reservations.give_back(connection, lease.id)
                returned = [], None  # they have changed once more
        return returned, may_serve_queue


def _decide(
    connection: Connection,
    call: _Call,
    before: Lease | _GpuLockedError | None,
    now: datetime.datetime,
) -> _Ending | Exception | None:
    """Return what is to become of a locked lease, or what is to be raised to its caller."""
    if before is None:
        return OvertakenError()  # it is not written with this group: it is tried again, alone
    if isinstance(before, _GpuLockedError):
        return before
    try:
        return call.decide(connection, before, now)
    except db_exception.DBError:
        raise  # the transaction can do nothing more, for any lease
    except Exception as error:  # noqa: BLE001 - it is raised to its caller
        return error


def _release(_: Connection, before: Lease, now: datetime.datetime) -> _Ending:
    after = before.with_(claims=())
    if before.released_at is not None:
        return _Ending(before, after, [], returns_claims=True)
    return _Ending(before, after.with_(released_at=now), ["released_at"], returns_claims=True)


def _terminate(
    connection: Connection, before: Lease, now: datetime.datetime, detail: str | None
) -> _Ending:
    lease, event = leases.move(connection, before, Event.RELEASE, detail, waiter_seen_at=None)
    happened = [event]
    returns_claims = before.status == Status.QUEUED or before.has_only_claims
    if returns_claims:
        released_at = lease.released_at or now
        lease, event = leases.move(
            connection, lease.with_(claims=()), Event.FINISH, released_at=released_at
        )
        happened.append(event)
    columns = ("waiter_seen_at", *leases.moved_columns(before, lease))
    return _Ending(before, lease, columns, happened, returns_claims=returns_claims)
