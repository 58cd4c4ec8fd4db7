# SPDX-License-Identifier: Apache-2.0
"""Reservations in the database: making and cancelling them, and what the engine's audit does for them.

`gsaas.objects.reservation` has the rules, `reservations` decides.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import clock
from gsaas.db import reservations as rows
from gsaas.db.database import Database
from gsaas.gpgpums import reservations
from gsaas.gpgpums.retry import retry
from gsaas.gpgpums.scheduler import GpuScheduler
from gsaas.gpgpums.wait_queue import end_each
from gsaas.limits import base as limits
from gsaas.limits.base import UNLIMITED
from gsaas.objects.gpu import Gpu
from gsaas.objects.placement import Refusal, Share
from gsaas.objects.request import Request
from gsaas.objects.reservation import (
    LIVE,
    Reservation,
    ReservationStatus,
    ReservedShare,
    status_at,
)

LOG = logging.getLogger(__name__)


class Reservations:
    """Makes, keeps and ends reservations, tried up to *attempts* times while other transactions are faster.

    A reservation begins to keep its shares *notice* before its beginning. *advance_queue* is called after what it kept
    is free again.
    """

    def __init__(
        self,
        database: Database,
        scheduler: GpuScheduler,
        *,
        attempts: int,
        notice: datetime.timedelta,
        advance_queue: Callable[[], None],
    ) -> None:
        self._database = database
        self._scheduler = scheduler
        self._attempts = attempts
        self._notice = notice
        self._advance_queue = advance_queue

    def create(
        self,
        wanted: Reservation,
        request: Request,
        policy_name: str | None = None,
        at_most: int = UNLIMITED,
        quota: limits.Amounts = limits.NO_LIMITS,
    ) -> Reservation:
        """Place *wanted*, which has no shares yet, and store it. Return it as it is stored.

        One that begins now keeps at once what is free of its shares, so that a launch need not wait for the next audit.
        Raises `QuotaExceeded` if its project would have more than *at_most* reservations, or *quota* in all of them
        together; `NoCapacity` or `NeverFits` if it does not fit beside the reservations that overlap it;
        `UnknownPolicy`; `PolicyNotAllowed`; `ClaimConflict` if other transactions were faster each time.
        """

        def write(_: int) -> Reservation:
            with self._database.writing() as connection:
                rows.prepare_placing(connection)
            return self._scheduler.with_pool(
                lambda: self._create(wanted, request, policy_name, at_most, quota)
            )

        placed = retry(self._attempts, write)
        with self._database.reading() as connection:
            if not self._keeps(placed, clock.now(connection)):
                return placed
        end_each([placed.id], lambda one: retry(self._attempts, lambda _: self._keep(one)))
        with self._database.reading() as connection:
            return rows.get(connection, placed.id)

    def cancel(self, reservation_id: str) -> Reservation:
        """Cancel a reservation, and return it; one that is over stays as it is. Its leases keep their GPUs.

        Raises `NotFound`, `ClaimConflict`.
        """
        ended = retry(
            self._attempts, lambda _: self._end(reservation_id, ReservationStatus.CANCELLED)
        )
        self._advance_queue()
        return ended

    def audit(self) -> None:
        """Begin and end reservations whose time has come, move what they have lost, and keep what is free."""
        with self._database.reading() as connection:
            now = clock.now(connection)
            live = {one.id: one for one in rows.live(connection)}
        due = [one.id for one in live.values() if status_at(one, now) is ReservationStatus.ENDED]
        ended = end_each(due, lambda one: retry(self._attempts, lambda _: self._is_ended(one)))
        rest = [one for one in live.values() if one.id not in due]
        lost = self._with_lost_shares(rest) if rest else set()
        wanting = [one.id for one in rest if one.id in lost or self._lacks(one, now)]
        end_each(wanting, lambda one: retry(self._attempts, lambda _: self._keep(one)))
        if ended:  # after the next reservations have had their shares of it
            self._advance_queue()

    def keep(self) -> None:
        """Keep what is free of the shares that reservations wait for."""
        with self._database.reading() as connection:
            waiting = rows.waiting(connection, clock.now(connection) + self._notice)
        end_each(waiting, lambda one: retry(self._attempts, lambda _: self._keep(one)))

    def _lacks(self, reservation: Reservation, now: datetime.datetime) -> bool:
        """Return whether *reservation* lacks shares that it has to keep by *now*, or the status that it has to have."""
        kept = all(share.kept for share in reservation.shares)
        lacks_shares = self._keeps(reservation, now) and not kept
        return lacks_shares or status_at(reservation, now) != reservation.status

    def _create(
        self,
        wanted: Reservation,
        request: Request,
        policy_name: str | None,
        at_most: int,
        quota: limits.Amounts,
    ) -> Reservation:
        with self._database.writing() as connection:
            rows.begin_placing(connection)
            live = rows.number_of(connection, wanted.project_id)
            if at_most != UNLIMITED and live >= at_most:
                row = {"name": "reservations", "used": live, "asked": 1, "limit": at_most}
                raise exceptions.QuotaExceeded(
                    reason=f"the project has {live} reservations of at most {at_most}",
                    details={"quotas": [row]},
                )
            self._scheduler.refresh(connection)
            policy = self._scheduler.policy(connection, policy_name)
            others = rows.live(connection)
            answer = self._scheduler.admit(others, request, policy, wanted.start, wanted.end)
            if isinstance(answer, Refusal):
                refused = exceptions.NeverFits if answer.impossible else exceptions.NoCapacity
                raise refused(reason=answer.reason, details=answer.to_dict())
            shares = tuple(
                ReservedShare(position, share.gpu_uuid, share.memory_mb)
                for position, share in enumerate(answer.shares)
            )
            own = [one for one in others if one.project_id == wanted.project_id]
            reserved = _amounts(share for one in own for share in one.shares)
            limits.check(quota, reserved, _amounts(shares))
            placed = replace(wanted, status=ReservationStatus.PENDING, shares=shares)
            rows.store(connection, placed)
            rows.forget_old(connection, wanted.project_id)
        return placed

    def _is_ended(self, reservation_id: str) -> bool:
        return self._end(reservation_id, ReservationStatus.ENDED).status not in LIVE

    def _end(self, reservation_id: str, status: ReservationStatus) -> Reservation:
        with self._database.writing() as connection:
            found = rows.get(connection, reservation_id, lock=True)
            if found.status not in LIVE:
                return found
            rows.set_status(connection, found, status)
            rows.drop(connection, found)
            return rows.get(connection, reservation_id)

    def _keeps(self, reservation: Reservation, now: datetime.datetime) -> bool:
        """Return whether *reservation* keeps its shares by *now*."""
        return now >= reservation.start - self._notice

    def _with_lost_shares(self, live: Iterable[Reservation]) -> set[str]:
        """Return the ids of those with shares on GPUs that are out of service."""

        def look() -> set[str]:
            with self._database.reading() as connection:
                self._scheduler.refresh(connection)
            return {one.id for one in live if reservations.lost(one, self._scheduler.gpus_of(one))}

        return self._scheduler.with_pool(look)

    def _keep(self, reservation_id: str) -> bool:
        """Bring the status of a reservation up to date, move what it has lost, and keep what is free of its shares."""
        return self._scheduler.with_pool(lambda: self._move_and_keep(reservation_id))

    def _move_and_keep(self, reservation_id: str) -> bool:
        with self._database.writing() as connection:
            placings = rows.placings(connection)
            self._scheduler.refresh(connection)
            found = rows.get(connection, reservation_id, lock=True)
            now = clock.now(connection)
            status = status_at(found, now)
            if status not in LIVE:
                return False
            if status != found.status:
                rows.set_status(connection, found, status)
            moves = self._moves(connection, found, now)
            if moves:
                rows.move(connection, found, status, moves)
                found = rows.get(connection, reservation_id)
            if self._keeps(found, now):
                self._keep_free(connection, found)
            if moves:
                rows.confirm_placing(connection, placings)
        for share, to in moves:
            before, after = share.gpu_uuid, to.gpu_uuid
            LOG.info("reservation %s moves from %s to %s", reservation_id, before, after)
        return True

    def _moves(
        self, connection: Connection, reservation: Reservation, now: datetime.datetime
    ) -> list[tuple[ReservedShare, Share]]:
        if not reservations.lost(reservation, self._scheduler.gpus_of(reservation)):
            return []
        others = [one for one in rows.live(connection) if one.id != reservation.id]
        policy = self._scheduler.policy(connection, None)
        keeps = self._keeps(reservation, now)
        return self._scheduler.moves(reservation, others, policy, now, keeps=keeps)

    def _keep_free(self, connection: Connection, reservation: Reservation) -> None:
        # Not those that shares have just moved away from: the pool must not learn what is not committed yet.
        self._scheduler.reread(connection, self._in_service(reservation))
        gpus = self._in_service(reservation)
        rows.keep(connection, reservation, reservations.to_keep(reservation, gpus), gpus)

    def _in_service(self, reservation: Reservation) -> dict[str, Gpu]:
        gpus = self._scheduler.gpus_of(reservation)
        return {uuid: gpu for uuid, gpu in gpus.items() if gpu.withheld is None}


def _amounts(shares: Iterable[ReservedShare]) -> limits.Amounts:
    """Return what reservations have of each limited resource; they have no leases until these are launched."""
    sizes = [share.memory_mb for share in shares]
    return {"cgpus": len(sizes), "gpu_memory_mb": sum(sizes), "leases": 0}
