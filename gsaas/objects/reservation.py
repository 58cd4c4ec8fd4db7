# SPDX-License-Identifier: Apache-2.0
"""A reservation: shares of GPUs that a project gets at a time to come, for a limited time. Pure.

PENDING    it is placed on GPUs, which others may use until shortly before its beginning
ACTIVE     between its beginning and its end: its project launches leases within it
ENDED      its end has come
CANCELLED  its owner or an operator has cancelled it

1. A reservation is admitted only if its shares, together with those of all reservations that overlap it, fit on the
   GPUs at every moment. So reservations never over-commit a GPU among themselves.
2. Leases have no end, so what leases have claimed is not considered when a reservation is admitted. Some time before
   its beginning it begins to keep its shares: what is free of them is kept at once, and what leases still use as soon
   as these return it. From then on no other lease gets it.
3. The GPU of a share may go out of service. The share then moves to another one that has room: before its reservation
   keeps anything, to where rule 1 allows it; from then on to where it is free, too. Until then it stays. What a lease
   of the reservation has does not move.
4. What is kept is recorded with the GPU (`Gpu.reserved_mb`), and changes its generation: a claim that has not seen it
   is overtaken, as by any other change.
"""

from __future__ import annotations

import datetime
import enum
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
    """What it asks for, as `Request.to_dict` writes it."""
    start: datetime.datetime
    end: datetime.datetime
    created_at: datetime.datetime
    shares: tuple[ReservedShare, ...] = ()


def status_at(reservation: Reservation, now: datetime.datetime) -> ReservationStatus:
    """Return the status that *reservation* should have at *now*."""
    status = ReservationStatus(reservation.status)
    if status not in LIVE:
        return status
    if now >= reservation.end:
        return ReservationStatus.ENDED
    return ReservationStatus.ACTIVE if now >= reservation.start else ReservationStatus.PENDING
