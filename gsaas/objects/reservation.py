# SPDX-License-Identifier: Apache-2.0
"""A reservation: shares of GPUs that a project gets at a time to come, for a limited time. Pure.

PENDING    it is placed on GPUs, which others may use until shortly before its beginning
ACTIVE     between its beginning and its end: its project launches leases within it
ENDED      its end has come
CANCELLED  its owner or an operator has cancelled it

1. A reservation is admitted only if its shares, together with those of all reservations that overlap it, fit on the
   GPUs at every moment. So reservations never over-commit a GPU among themselves.
2. Leases need not end, so what leases have claimed is not considered when a reservation is admitted; it is placed on
   GPUs whose leases end before it, if there are enough. Some time before its beginning it begins to keep its shares:
   what is free of them is kept at once, and what leases still use as soon as these return it. From then on no other
   lease gets it.
3. The GPU of a share may go out of service. The share then moves to another one that has room: before its reservation
   keeps anything, to where rule 1 allows it; from then on to where it is free, too. Until then it stays. What a lease
   of the reservation has does not move.
4. What is kept is recorded with the GPU (`Gpu.reserved_mb`), and changes its generation: a claim that has not seen it
   is overtaken, as by any other change.
"""

from __future__ import annotations

import datetime
import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gsaas.objects.placement import Share


class ReservationStatus(enum.StrEnum):
    """The status of a reservation."""

    PENDING = "PENDING"
    ACTIVE = "ACTIVE"
    ENDED = "ENDED"
    CANCELLED = "CANCELLED"


class ReservationEvent(enum.StrEnum):
    """An event of a reservation that notifications report."""

    CREATE = "create"
    START = "start"
    MOVE = "move"
    """Some of its shares got other GPUs."""
    END = "end"
    """It has ended or was cancelled."""


LIVE = (ReservationStatus.PENDING, ReservationStatus.ACTIVE)
"""Statuses in which a reservation has shares."""


@dataclass(frozen=True)
class ReservedShare:
    """One cGPU of a reservation."""

    position: int
    gpu_uuid: str
    memory_mb: int
    kept: bool = False
    """It is part of the `reserved_mb` of its GPU, or a lease of the reservation has claimed it."""
    lease_id: str | None = None
    """The lease of the reservation that has it."""

    @property
    def share(self) -> Share:
        """Return it as a part of a placement."""
        return Share(self.gpu_uuid, self.memory_mb)


@dataclass(frozen=True)
class Reservation:
    """*cgpus* from *start* to *end*, which are UTC without a time zone."""

    id: str
    project_id: str
    user_id: str
    name: str
    status: str
    cgpus: Mapping[str, Any]
    """What it asks for, as `Request.to_dict` and `Request.stored_requirements` write it."""
    start: datetime.datetime
    end: datetime.datetime
    created_at: datetime.datetime
    shares: tuple[ReservedShare, ...] = ()


DAY = datetime.timedelta(days=1)
SLACK = datetime.timedelta(hours=1)
"""Clocks of callers differ, and the day on which summer time ends has 25 hours."""


@dataclass(frozen=True)
class Exceeded:
    """A limit of `[quotas]` that a reservation is beyond."""

    option: str
    asked: int
    """Days, rounded up."""
    limit: int

    def __str__(self) -> str:
        what = "last" if self.option == "reservation_days" else "begin in"
        return f"it would {what} {self.asked} days, and at most {self.limit} are allowed"


@dataclass(frozen=True)
class Horizon:
    """How long reservations may be, and how far ahead they may begin; None: without a limit."""

    longest: datetime.timedelta | None = None
    ahead: datetime.timedelta | None = None

    @classmethod
    def of_days(cls, longest: int, ahead: int) -> Horizon:
        """Return it for numbers of days, of which 0 is no limit."""
        days = (datetime.timedelta(days=number) if number else None for number in (longest, ahead))
        return cls(*days)

    def exceeded(
        self, start: datetime.datetime, end: datetime.datetime, now: datetime.datetime
    ) -> Exceeded | None:
        """Return which limit a reservation from *start* to *end* exceeds *now*; None if it is within both."""
        for option, asked, limit in (
            ("reservation_days", end - start, self.longest),
            ("reservation_days_ahead", start - now, self.ahead),
        ):
            if limit is not None and asked > limit + SLACK:
                return Exceeded(option, math.ceil(asked / DAY), limit.days)
        return None


def has_begun(reservation: Reservation, now: datetime.datetime) -> bool:
    """Return whether *reservation* has begun by *now*.

    Clocks differ, even two readings of one server's clock, by the time that the answers took: one that is ACTIVE, or
    that was made to begin at once, has begun by all of them.
    """
    if (
        reservation.status == ReservationStatus.ACTIVE
        or reservation.created_at >= reservation.start
    ):
        return True
    return now >= reservation.start


def status_at(reservation: Reservation, now: datetime.datetime) -> ReservationStatus:
    """Return the status that *reservation* should have at *now*."""
    status = ReservationStatus(reservation.status)
    if status not in LIVE:
        return status
    if now >= reservation.end:
        return ReservationStatus.ENDED
    begun = has_begun(reservation, now)
    return ReservationStatus.ACTIVE if begun else ReservationStatus.PENDING
