# SPDX-License-Identifier: Apache-2.0
"""The changes of the books that concern reservations. Pure; `gsaas.gpgpums.reservations` has the rules."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gsaas import exceptions
from gsaas.gpgpums import reservations
from gsaas.gpgpums.changes import Change, placed
from gsaas.gpgpums.entries import Entry, ReservationEntry, Rows
from gsaas.gpgpums.pool import Pool
from gsaas.limits import base as limits
from gsaas.objects.gpu import Gpu
from gsaas.objects.placement import Refusal, Share
from gsaas.objects.request import Request
from gsaas.objects.reservation import (
    LIVE,
    Reservation,
    ReservationStatus,
    ReservedShare,
    has_begun,
    status_at,
)

if TYPE_CHECKING:
    from gsaas.gpgpums.view import View


@dataclass(frozen=True)
class ReservationChange(Change):
    """A change of a reservation that is stored."""

    reservation_id: str

    @property
    def rows(self) -> Rows:
        """Return the row of the reservation."""
        return Rows(reservation=self.reservation_id)


@dataclass(frozen=True)
class Reserve(Change):
    """A new reservation is placed beside those that overlap it."""

    wanted: Reservation
    """Without shares."""
    request: Request
    policy_name: str | None
    at_most: int
    """The most reservations that its project may have with it."""
    quota: limits.Amounts
    """The most that its project may have in leases and reservations together."""

    @property
    def rows(self) -> Rows:
        """Return the rows that are to be locked first."""
        project = self.wanted.project_id if limits.limited(self.quota) else None
        return Rows(project=project, placings=True)

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `QuotaExceeded`, `NoCapacity`, `NeverFits`, `UnknownPolicy`, `PolicyNotAllowed`."""
        wanted, others = self.wanted, view.live_reservations()
        own = [one for one in others if one.project_id == wanted.project_id]
        if self.at_most != limits.UNLIMITED and len(own) >= self.at_most:
            raise exceptions.QuotaExceeded(
                reason=f"the project has {len(own)} reservations of at most {self.at_most}",
                details={
                    "quotas": [
                        {
                            "name": "reservations",
                            "used": len(own),
                            "asked": 1,
                            "limit": self.at_most,
                        }
                    ]
                },
            )
        policy = view.policy(self.policy_name)
        compute_hosts = view.pool.compute_hosts
        asked = (view.pool, compute_hosts, others, self.request, policy, wanted.start, wanted.end)
        # Rather where no lease lasts until it begins. That leases have ends gives it no more, only the better GPUs.
        answer = reservations.admit(*asked, lasting=view.lasting(wanted.start))
        if isinstance(answer, Refusal):
            answer = reservations.admit(*asked)
        placement = placed(answer)
        shares = tuple(
            ReservedShare(position, share.gpu_uuid, share.memory_mb)
            for position, share in enumerate(placement.shares)
        )
        if limits.limited(self.quota):
            used = view.usage(wanted.project_id)
            more = limits.reserved([share.memory_mb for share in shares])
            limits.check(self.quota, used.total, more, used.reserved)
        new = replace(wanted, status=ReservationStatus.PENDING, shares=shares)
        return Entry(reservation=ReservationEntry(new, is_new=True))


@dataclass(frozen=True)
class Keep(ReservationChange):
    """A reservation gets the status that it has to have, moves what it has lost, and keeps what is free of its shares.

    It begins to keep its shares *notice* before its beginning. The entry is empty if the reservation is over.
    """

    notice: datetime.timedelta

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `NotFound`."""
        found, pool = view.reservation(self.reservation_id), view.pool
        status = status_at(found, view.now)
        if status not in LIVE:
            return Entry()
        keeps = has_begun(found, view.now + self.notice)
        moves: list[tuple[ReservedShare, Share]] = []
        placings = 0
        if reservations.lost(found, reservations.gpus_of(pool, found.shares)):
            placings = view.placings()
            others = [one for one in view.live_reservations() if one.id != found.id]
            policy = view.policy(None)
            moves = reservations.moves(
                found, pool, pool.compute_hosts, others, policy, view.now, keeps=keeps
            )
        after = _reserved(
            pool, ((share.gpu_uuid, -share.memory_mb) for share, _ in moves if share.kept)
        )
        elsewhere = {
            share.position: ReservedShare(share.position, to.gpu_uuid, to.memory_mb)
            for share, to in moves
        }
        shares = tuple(elsewhere.get(share.position, share) for share in found.shares)
        kept: list[ReservedShare] = []
        if keeps:
            known = reservations.gpus_of(pool, shares)
            in_service = {uuid: gpu for uuid, gpu in known.items() if gpu.withheld is None}
            kept = reservations.to_keep(replace(found, shares=shares), in_service)
            after |= _reserved(pool, ((share.gpu_uuid, share.memory_mb) for share in kept))
        return Entry(
            after,
            reservation=ReservationEntry(
                found,
                status=status if status != found.status else None,
                moves=moves,
                placings=placings,
                kept=kept,
            ),
        )


@dataclass(frozen=True)
class EndReservation(ReservationChange):
    """A reservation ends with *status*, and keeps nothing any more; its leases go on. One that is over stays so."""

    status: ReservationStatus

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `NotFound`."""
        found = view.reservation(self.reservation_id)
        if found.status not in LIVE:
            return Entry()
        kept = [share for share in found.shares if share.kept and share.lease_id is None]
        return Entry(
            _reserved(view.pool, ((share.gpu_uuid, -share.memory_mb) for share in kept)),
            reservation=ReservationEntry(found, status=self.status, is_over=True),
        )


def _reserved(pool: Pool, sizes: Iterable[tuple[str, int]]) -> dict[str, Gpu]:
    """Return GPUs by UUID as they are when so many MiB more of each are reserved; those that are gone are left out."""
    total = Counter[str]()
    for uuid, size in sizes:
        total[uuid] += size
    known = {uuid: (pool.get(uuid), size) for uuid, size in total.items()}
    return {
        uuid: gpu.reserve(size, generation=gpu.generation + 1)
        for uuid, (gpu, size) in known.items()
        if gpu is not None
    }
