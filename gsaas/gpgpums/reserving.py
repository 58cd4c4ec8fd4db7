# SPDX-License-Identifier: Apache-2.0
"""Reservations in the database: making and cancelling them, and what the engine's audit does for them.

`gsaas.objects.reservation` has the rules, `reservations` decides.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import replace

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
from gsaas.objects.placement import Refusal
from gsaas.objects.request import Request
from gsaas.objects.reservation import (
    LIVE,
    Reservation,
    ReservationStatus,
    ReservedShare,
    status_at,
)


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

        Raises `QuotaExceeded` if its project would have more than *at_most* reservations, or *quota* in all of them
        together; `NoCapacity` or `NeverFits` if it does not fit beside the reservations that overlap it;
        `UnknownPolicy`; `PolicyNotAllowed`; `ClaimConflict` if other transactions were faster each time.
        """

        def write(_: bool) -> Reservation:
            with self._database.writing() as connection:
                rows.prepare_placing(connection)
            return self._scheduler.with_pool(
                lambda: self._create(wanted, request, policy_name, at_most, quota)
            )

        return retry(self._attempts, write)

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
        """Begin and end reservations whose time has come, and keep what is free of their shares."""
        with self._database.reading() as connection:
            now = clock.now(connection)
            live = {one.id: one for one in rows.live(connection)}
        due = [one.id for one in live.values() if status_at(one, now) is ReservationStatus.ENDED]
        ended = end_each(due, lambda one: retry(self._attempts, lambda _: self._is_ended(one)))
        near = [one.id for one in live.values() if one.id not in due and self._lacks(one, now)]
        end_each(near, lambda one: retry(self._attempts, lambda _: self._keep(one)))
        if ended:  # after the next reservations have had their shares of it
            self._advance_queue()

    def keep(self) -> None:
        """Keep what is free of the shares that reservations wait for."""
        with self._database.reading() as connection:
            waiting = rows.waiting(connection, clock.now(connection) + self._notice)
        end_each(waiting, lambda one: retry(self._attempts, lambda _: self._keep(one)))

    def _lacks(self, reservation: Reservation, now: datetime.datetime) -> bool:
        """Return whether *reservation* lacks shares that it has to keep by *now*, or the status that it has to have."""
        keeps = now >= reservation.start - self._notice
        kept = all(share.kept for share in reservation.shares)
        return (keeps and not kept) or status_at(reservation, now) != reservation.status

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

    def _keep(self, reservation_id: str) -> bool:
        """Bring the status of a reservation up to date, and keep what is free of its shares."""
        return self._scheduler.with_pool(lambda: self._keep_free(reservation_id))

    def _keep_free(self, reservation_id: str) -> bool:
        with self._database.writing() as connection:
            self._scheduler.refresh(connection)
            found = rows.get(connection, reservation_id, lock=True)
            status = status_at(found, clock.now(connection))
            if status not in LIVE:
                return False
            if status != found.status:
                rows.set_status(connection, found, status)
            gpus = self._scheduler.gpus_of(found)
            self._scheduler.reread(connection, gpus)
            gpus = {
                uuid: gpu
                for uuid, gpu in self._scheduler.gpus_of(found).items()
                if gpu.withheld is None
            }
            rows.keep(connection, found, reservations.to_keep(found, gpus), gpus)
        return True


def _amounts(shares: Iterable[ReservedShare]) -> limits.Amounts:
    """Return what reservations have of each limited resource; they have no leases until these are launched."""
    sizes = [share.memory_mb for share in shares]
    return {"cgpus": len(sizes), "gpu_memory_mb": sum(sizes), "leases": 0}
