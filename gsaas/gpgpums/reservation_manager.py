# SPDX-License-Identifier: Apache-2.0
"""Reservations in the database: making and cancelling them, and what the engine's audit does for them.

`gsaas.objects.reservation` has the rules, `gsaas.gpgpums.reservations` decides.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import cast

from gsaas.db import clock
from gsaas.db import reservations as rows
from gsaas.db.database import Database
from gsaas.gpgpums import reservations
from gsaas.gpgpums.committer import Committer, end_each, retry
from gsaas.gpgpums.entries import ReservationEntry
from gsaas.gpgpums.reservation_changes import EndReservation, Reserve
from gsaas.gpgpums.view import View
from gsaas.limits import base as limits
from gsaas.limits.base import UNLIMITED
from gsaas.objects.request import Request
from gsaas.objects.reservation import Reservation, ReservationStatus, has_begun, status_at


class ReservationManager:
    """Makes and ends reservations; what they kept goes to the next ones, and then to the queue."""

    def __init__(self, database: Database, committer: Committer) -> None:
        self._database = database
        self._committer = committer

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

        def prepare(_: int) -> None:
            with self._database.writing() as connection:
                rows.prepare_placing(connection)

        retry(self._committer.attempts, prepare)
        entry = self._committer.commit(Reserve(wanted, request, policy_name, at_most, quota))
        placed = cast(ReservationEntry, entry.reservation).before
        with self._database.reading() as connection:
            if not self._keeps(placed, clock.now(connection)):
                return placed
        end_each([placed.id], self._committer.keep)
        return self._stored(placed.id)

    def cancel(self, reservation_id: str) -> Reservation:
        """Cancel a reservation, and return it; one that is over stays as it is. Its leases keep their GPUs.

        Raises `NotFound`, `ClaimConflict`.
        """
        self._committer.commit(EndReservation(reservation_id, ReservationStatus.CANCELLED))
        self._committer.advance_queue()
        return self._stored(reservation_id)

    def audit(self) -> None:
        """Begin and end reservations whose time has come, move what they have lost, and keep what is free."""
        with self._database.reading() as connection:
            now = clock.now(connection)
            live = {one.id: one for one in rows.live(connection)}
        due = [one.id for one in live.values() if status_at(one, now) is ReservationStatus.ENDED]
        ended = end_each(due, self._end)
        rest = [one for one in live.values() if one.id not in due]
        lost = self._with_lost_shares(rest) if rest else set()
        wanting = [one.id for one in rest if one.id in lost or self._lacks(one, now)]
        end_each(wanting, self._committer.keep)
        if ended:  # after the next reservations have had their shares of it
            self._committer.advance_queue()

    def _end(self, reservation_id: str) -> bool:
        self._committer.commit(EndReservation(reservation_id, ReservationStatus.ENDED))
        return True

    def _stored(self, reservation_id: str) -> Reservation:
        with self._database.reading() as connection:
            return rows.get(connection, reservation_id)

    def _lacks(self, reservation: Reservation, now: datetime.datetime) -> bool:
        """Return whether *reservation* lacks shares that it has to keep by *now*, or the status that it has to have."""
        kept = all(share.kept for share in reservation.shares)
        lacks_shares = self._keeps(reservation, now) and not kept
        return lacks_shares or status_at(reservation, now) != reservation.status

    def _keeps(self, reservation: Reservation, now: datetime.datetime) -> bool:
        """Return whether *reservation* keeps its shares by *now*."""
        return has_begun(reservation, now + self._committer.notice)

    def _with_lost_shares(self, live: Iterable[Reservation]) -> set[str]:
        """Return the ids of those with shares on GPUs that are out of service."""

        def have_lost(view: View) -> set[str]:
            known = {one.id: reservations.gpus_of(view.pool, one.shares) for one in live}
            return {one.id for one in live if reservations.lost(one, known[one.id])}

        return self._committer.ledger.look(have_lost)
