# SPDX-License-Identifier: Apache-2.0
"""The queue as the database has it: leases that are QUEUED, in the order in which they are served.

1. The order is by priority, descending, then `queued_at`, then id. Positions are not stored; they are counted.
2. A lease leaves the queue in one transaction, with GPUs or without, never both: each locks the lease's row.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Text,
    and_,
    bindparam,
    cast,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.orm import aliased

from gsaas.db import clock, leases
from gsaas.db.models import LeaseRow
from gsaas.db.ordering import order_of
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import ENTITLED, Status
from gsaas.objects.request import Request

SAMPLE_SIZE = 64
"""The number of leases, the last ones that were released, from which the waiting time is estimated."""

_IN_QUEUE = and_(LeaseRow.status == Status.QUEUED, LeaseRow.queued_at.is_not(None))
"""The second condition follows from the first; with it the database uses a small index, of leases that ever waited."""

SORT_KEYS = {
    "lease_id": LeaseRow.id,
    **{
        name: getattr(LeaseRow, name)
        for name in ("name", "project_id", "user_id", "priority", "queued_at", "wait_until")
    },
}
"""Columns that a list of the queue may be sorted by."""

ORDER = (("priority", True), ("queued_at", False), ("lease_id", False))
"""The order in which leases are served."""

TOP_PRIORITY = select(func.max(LeaseRow.priority)).where(_IN_QUEUE)
"""None if the queue is empty; found at the end of an index."""


@dataclass(frozen=True)
class QueuedLease:
    """The columns of a lease in the queue that decide when it is served, and what it asks for."""

    id: str
    project_id: str
    priority: int
    queued_at: datetime.datetime
    count: int
    mode: str
    memory_mb: int | None
    locality: str
    requirements: Mapping[str, Any]
    policy: str | None
    consumer_host: str | None
    duration: int | None
    ends_at: datetime.datetime | None

    @property
    def request(self) -> Request:
        """Return what it asks for."""
        fields = {
            "count": self.count,
            "mode": self.mode,
            "memory_mb": self.memory_mb,
            "locality": self.locality,
            **self.requirements,
        }
        return Request.from_dict(fields, self.consumer_host)


_COLUMNS = tuple(getattr(LeaseRow, column.name) for column in dataclasses.fields(QueuedLease))

_OTHER = aliased(LeaseRow)

_STILL_WAITS = and_(
    _IN_QUEUE,
    or_(LeaseRow.wait_until.is_(None), LeaseRow.wait_until > bindparam("now")),
    or_(LeaseRow.ends_at.is_(None), LeaseRow.ends_at > bindparam("now")),
    or_(LeaseRow.waiter_seen_at.is_(None), LeaseRow.waiter_seen_at >= bindparam("polled_since")),
)
"""A lease whose time is over, or whose client is silent, stays QUEUED until the next audit; it is served no more."""

_HEAD = (
    select(*_COLUMNS)
    .where(
        _STILL_WAITS,
        LeaseRow.priority
        == select(func.max(_OTHER.priority))
        .where(_OTHER.status == Status.QUEUED, _OTHER.queued_at.is_not(None))
        .scalar_subquery(),
    )
    .order_by(LeaseRow.queued_at, LeaseRow.id)
    .limit(1)
)

_ALL = (
    select(*_COLUMNS)
    .where(_STILL_WAITS)
    .order_by(LeaseRow.priority.desc(), LeaseRow.queued_at, LeaseRow.id)
)

_WAIT_STATE = select(
    LeaseRow.status,
    LeaseRow.wait_until,
    LeaseRow.waiter_seen_at,
    LeaseRow.user_id,
    LeaseRow.request_key,
).where(LeaseRow.id == bindparam("this"))


class WaitState(NamedTuple):
    """The columns of a lease that decide how a client waits for it."""

    status: str
    wait_until: datetime.datetime | None
    seen_at: datetime.datetime | None
    user_id: str
    request_key: str | None
    at: datetime.datetime
    """When this was read."""

    @property
    def is_repeatable(self) -> bool:
        """Return whether the request that made the lease may be repeated, and is then answered with this lease."""
        return self.request_key is not None


class Place(NamedTuple):
    """A lease's *position* in the queue, from 1, and the *length* of the queue."""

    position: int
    length: int


def wait_state(connection: Connection, lease_id: str) -> WaitState:
    """Return the state of a lease that exists."""
    status, wait_until, seen_at, user_id, request_key = connection.execute(
        _WAIT_STATE, {"this": lease_id}
    ).one()
    return WaitState(status, wait_until, seen_at, user_id, request_key, clock.now(connection))


def is_empty(connection: Connection) -> bool:
    """Return whether no lease waits."""
    return connection.scalar(TOP_PRIORITY) is None


def head(connection: Connection, client_timeout: float) -> QueuedLease | None:
    """Return the first lease of those with the top priority; None if none of these still waits.

    *client_timeout* is how long a client that announced to poll may be silent, in seconds.
    """
    row = connection.execute(_HEAD, _moments(connection, client_timeout)).first()
    return None if row is None else QueuedLease(*row)


def waiting(
    connection: Connection, client_timeout: float, at_least: int | None = None
) -> list[QueuedLease]:
    """Return all leases that still wait, in the order of the queue; only those with a priority of *at_least*."""
    query = _ALL if at_least is None else _ALL.where(LeaseRow.priority >= at_least)
    return [
        QueuedLease(*row) for row in connection.execute(query, _moments(connection, client_timeout))
    ]


def place(connection: Connection, lease: Lease) -> Place | None:
    """Return where *lease* stands in the queue; None if it is not in it (any more)."""
    up_to_lease = or_(
        LeaseRow.priority > lease.priority,
        and_(LeaseRow.priority == lease.priority, LeaseRow.queued_at < lease.queued_at),
        and_(
            LeaseRow.priority == lease.priority,
            LeaseRow.queued_at == lease.queued_at,
            LeaseRow.id <= lease.id,
        ),
    )
    position, total = connection.execute(
        select(
            select(func.count()).where(_IN_QUEUE, up_to_lease).scalar_subquery(),
            select(func.count()).where(_IN_QUEUE).scalar_subquery(),
        )
    ).one()
    return Place(position, total) if position else None


def positions(connection: Connection) -> dict[str, int]:
    """Return the position of every lease in the queue, from 1, by lease id."""
    ids = connection.scalars(
        select(LeaseRow.id)
        .where(_IN_QUEUE)
        .order_by(LeaseRow.priority.desc(), LeaseRow.queued_at, LeaseRow.id)
    )
    return {lease_id: position for position, lease_id in enumerate(ids, start=1)}


def length(connection: Connection, project_id: str | None = None) -> int:
    """Return how many leases are in the queue: of one project, or of all."""
    query = select(func.count()).where(_IN_QUEUE)
    if project_id is not None:
        query = query.where(LeaseRow.project_id == project_id)
    return connection.scalars(query).one()


def characters(connection: Connection, project_id: str) -> int:
    """Return how many characters the server fields of the requests of a project take that are in the queue, as JSON."""
    query = select(func.coalesce(func.sum(func.length(cast(LeaseRow.server_request, Text))), 0))
    query = query.where(_IN_QUEUE, LeaseRow.project_id == project_id)
    return int(connection.scalars(query).one())


def page(
    connection: Connection,
    *,
    project_id: str | None = None,
    limit: int,
    marker: str | None = None,
    sort: Sequence[tuple[str, bool]] = (),
) -> list[Lease]:
    """Return up to *limit* leases in the queue after the lease *marker*.

    *sort* are names of `SORT_KEYS`, each with whether it is descending; by default the order is that of the queue.
    """
    order = order_of(SORT_KEYS, "lease_id", sort, ORDER)
    conditions: list[ColumnElement[bool]] = [_IN_QUEUE]
    if project_id is not None:
        conditions.append(LeaseRow.project_id == project_id)
    after = None
    if marker is not None:
        last = leases.marked(connection, marker, project_id)
        after = [getattr(last, key.column.name) for key in order.keys]
    query = leases.select_leases(*conditions)
    return leases.read(connection, order.page(query, limit, after))


def durations(connection: Connection) -> tuple[int, list[float]]:
    """Return how many leases have GPUs now, and for how many seconds each of the last released ones had them."""
    now = connection.scalars(select(func.count()).where(LeaseRow.status.in_(ENTITLED))).one()
    past = connection.execute(
        select(LeaseRow.claimed_at, LeaseRow.released_at)
        .where(LeaseRow.status == Status.RELEASED, LeaseRow.claimed_at.is_not(None))
        .order_by(LeaseRow.created_at.desc(), LeaseRow.id.desc())
        .limit(SAMPLE_SIZE)
    )
    return now, [(end - begin).total_seconds() for begin, end in past if begin and end]


def overdue(connection: Connection) -> list[str]:
    """Return the ids of the leases in the queue whose `wait_until` has passed."""
    query = select(LeaseRow.id).where(_IN_QUEUE, LeaseRow.wait_until <= clock.now(connection))
    return list(connection.scalars(query))


def with_silent_client(connection: Connection, before: datetime.datetime) -> list[str]:
    """Return the ids of the leases whose client announced to poll, and has not polled since *before*.

    They may have been given GPUs meanwhile, of which no client knows.
    """
    query = select(LeaseRow.id).where(
        LeaseRow.status.in_((Status.QUEUED, *ENTITLED)), LeaseRow.waiter_seen_at < before
    )
    return list(connection.scalars(query))


def note_client_polled(connection: Connection, lease_id: str) -> None:
    """Note that the client that waits for a lease in the queue has polled now."""
    _note_client(connection, lease_id, Status.QUEUED, clock.now(connection))


def note_client_informed(connection: Connection, lease_id: str) -> None:
    """Note that the client knows the outcome of its wait, and need not poll."""
    _note_client(connection, lease_id, None, None)


def _moments(connection: Connection, client_timeout: float) -> dict[str, datetime.datetime]:
    now = clock.now(connection)
    return {"now": now, "polled_since": now - datetime.timedelta(seconds=client_timeout)}


def _note_client(
    connection: Connection,
    lease_id: str,
    status: Status | None,
    seen_at: datetime.datetime | None,
) -> None:
    query = update(LeaseRow).where(LeaseRow.id == lease_id, LeaseRow.waiter_seen_at.is_not(None))
    if status is not None:
        query = query.where(LeaseRow.status == status)
    # `updated_at` stays: an engine that owns the lease compares it.
    connection.execute(query.values(waiter_seen_at=seen_at, updated_at=LeaseRow.updated_at))
