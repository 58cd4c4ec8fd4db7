# SPDX-License-Identifier: Apache-2.0
"""What transactions have changed, to announce it after the commit.

    database.on_commit = notifications.committed

Code that changes something calls `note`. `Database.writing` passes what was noted to `Database.on_commit` once the
transaction is committed; a transaction that is rolled back has noted nothing. Without an `on_commit`, noting costs a
look-up in a dictionary.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy import Connection

from gsaas.objects.reservation import ReservationEvent

NOTED = "gsaas_changes"
"""The key of the list in the information about a connection."""


@dataclass(frozen=True)
class LeaseChange:
    """An event of a lease, as it was recorded; *at* is UTC."""

    lease_id: str
    event: str
    status: str
    """The lease's status after it."""
    at: datetime.datetime


@dataclass(frozen=True)
class GpuChange:
    """A GPU that was withdrawn, or has returned to service."""

    uuid: str
    host: str
    model: str
    memory_mb: int
    withdrawn_reason: str | None
    """Why it was withdrawn; None if it has returned."""
    awaits_operator: bool
    at: datetime.datetime


@dataclass(frozen=True)
class ReservationChange:
    """An event of a reservation."""

    reservation_id: str
    event: ReservationEvent
    status: str
    """The reservation's status after it."""
    at: datetime.datetime
    moved_from: Mapping[int, str]
    """Position of each share that has moved -> the UUID of the GPU that it was on; empty for other events."""


Change: TypeAlias = LeaseChange | GpuChange | ReservationChange
OnCommit = Callable[[Sequence[Change]], None]
"""Called with what a transaction has changed. It must neither block nor raise: whoever has committed waits for it."""


def is_wanted(connection: Connection) -> bool:
    """Return whether anybody is told what the transaction of *connection* changes."""
    return NOTED in connection.info


def note(connection: Connection, *happened: Change) -> None:
    """Note what the transaction of *connection* has changed."""
    noted: list[Change] | None = connection.info.get(NOTED)
    if noted is not None:
        noted.extend(happened)
