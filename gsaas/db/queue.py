"""The queue as the database has it: leases that are QUEUED, in the order of their turns.

1. Turns go by priority, descending, then `queued_at`, then id. No row says how far it is; that is counted.
2. A place is left in one transaction: by a claim (`gsaas.gpgpums.claims`) or by `leave`, never by both, because
   either holds the lease's row.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

from oslo_utils import timeutils
from sqlalchemy import Connection, and_, bindparam, func, or_, select, update
from sqlalchemy.orm import Session, aliased

from gsaas.db import leases
from gsaas.db.models import LeaseRow
from gsaas.db.prepared import Prepared
from gsaas.objects.lifecycle import Event, Status

STEP = "queue"
"""The step of a lease that its fault names when it left the queue without GPUs."""

HOLDING = (Status.CLAIMED, Status.BOOTING, Status.ACTIVE)

REMEMBERED = 64
"""Leases whose time of holding GPUs an estimate is made from: the last ones."""

_IN_QUEUE = and_(LeaseRow.status == Status.QUEUED, LeaseRow.queued_at.is_not(None))
"""The second follows from the first; it tells of an index, which has only those that ever waited."""

TOP_PRIORITY = select(func.max(LeaseRow.priority)).where(_IN_QUEUE)
"""None if nobody waits; found at the end of an index."""

_TOP_PRIORITY = Prepared(TOP_PRIORITY)


class Waiter(NamedTuple):
    """What tells whose turn it is, and what he would have: columns of a lease that waits."""

    id: str
    project_id: str
    priority: int
    queued_at: datetime.datetime
    count: int
    mode: str
    memory_mb: int | None
    locality: str
    requirements: dict[str, Any]
    policy: str | None
    consumer_host: str | None


_COLUMNS = tuple(getattr(LeaseRow, name) for name in Waiter._fields)

_OTHER = aliased(LeaseRow)

_WAITS = and_(
    _IN_QUEUE,
    or_(LeaseRow.wait_until.is_(None), LeaseRow.wait_until > bindparam("now")),
    or_(LeaseRow.waiter_seen_at.is_(None), LeaseRow.waiter_seen_at >= bindparam("heard_since")),
)
"""Those whose time is over, or whose client is gone, only have not been told yet."""

_HEAD = Prepared(
    select(*_COLUMNS)
    .where(
        _WAITS,
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
    .where(_WAITS)
    .order_by(LeaseRow.priority.desc(), LeaseRow.queued_at, LeaseRow.id)
)


_LOOK = Prepared(
    select(LeaseRow.status, LeaseRow.wait_until, LeaseRow.waiter_seen_at, LeaseRow.user_id).where(
        LeaseRow.id == bindparam("this")
    )
)


class Look(NamedTuple):
    """What a client that waits has to know of its lease."""

    status: str
    wait_until: datetime.datetime | None
    seen_at: datetime.datetime | None
    user_id: str
    at: datetime.datetime
    """When that was so."""


class Place(NamedTuple):
    """Where a request stands: *position* from 1, of *length* in the queue."""

    position: int
    length: int


def look(connection: Connection, lease_id: str) -> Look:
    """Return how a lease is that is there."""
    return Look(*_LOOK.rows(connection, this=lease_id)[0], timeutils.utcnow())


def anybody(connection: Connection) -> bool:
    """Does anybody wait?"""
    return _TOP_PRIORITY.rows(connection)[0][0] is not None


def head(connection: Connection, client_timeout: float) -> Waiter | None:
    """Return who is first of those with the top priority; None if none of these still waits.

    *client_timeout* is how long a client that promised to ask may be silent, in seconds.
    """
    rows = _HEAD.rows(connection, **_moments(client_timeout))
    return Waiter(*rows[0]) if rows else None


def everybody(
    connection: Connection, client_timeout: float, at_least: int | None = None
) -> Sequence[Waiter]:
    """Return all who wait, in the order of their turns; only those with a priority of *at_least*."""
    query = _ALL if at_least is None else _ALL.where(LeaseRow.priority >= at_least)
    return [Waiter(*row) for row in connection.execute(query, _moments(client_timeout))]


def place(session: Session, lease: LeaseRow) -> Place | None:
    """Return where *lease* stands; None if it is not in the queue (any more)."""
    before = or_(
        LeaseRow.priority > lease.priority,
        and_(LeaseRow.priority == lease.priority, LeaseRow.queued_at < lease.queued_at),
        and_(
            LeaseRow.priority == lease.priority,
            LeaseRow.queued_at == lease.queued_at,
            LeaseRow.id <= lease.id,
        ),
    )
    position, length = session.execute(
        select(
            select(func.count()).where(_IN_QUEUE, before).scalar_subquery(),
            select(func.count()).where(_IN_QUEUE).scalar_subquery(),
        )
    ).one()
    return Place(position, length) if position else None


def order(session: Session) -> dict[str, int]:
    """Return the position of everybody who waits, from 1, by lease id."""
    ids = session.scalars(
        select(LeaseRow.id)
        .where(_IN_QUEUE)
        .order_by(LeaseRow.priority.desc(), LeaseRow.queued_at, LeaseRow.id)
    )
    return {lease_id: position for position, lease_id in enumerate(ids, start=1)}


def length(connection: Connection | Session, project_id: str | None = None) -> int:
    """Return how many requests wait: of one project, or of all."""
    query = select(func.count()).where(_IN_QUEUE)
    if project_id is not None:
        query = query.where(LeaseRow.project_id == project_id)
    return connection.scalar(query)


def page(
    session: Session, *, project_id: str | None = None, limit: int, marker: str | None = None
) -> list[LeaseRow]:
    """Return up to *limit* leases that wait after the lease *marker*, in the order of their turns."""
    query = (
        select(LeaseRow)
        .where(_IN_QUEUE)
        .order_by(LeaseRow.priority.desc(), LeaseRow.queued_at, LeaseRow.id)
        .limit(limit)
    )
    if project_id is not None:
        query = query.where(LeaseRow.project_id == project_id)
    if marker is not None:
        last = leases.marked(session, marker, project_id)
        query = query.where(
            or_(
                LeaseRow.priority < last.priority,
                and_(LeaseRow.priority == last.priority, LeaseRow.queued_at > last.queued_at),
                and_(
                    LeaseRow.priority == last.priority,
                    LeaseRow.queued_at == last.queued_at,
                    LeaseRow.id > last.id,
                ),
            )
        )
    return list(session.scalars(query))


def holding(session: Session) -> tuple[int, list[float]]:
    """Return how many leases hold GPUs now, and for how many seconds each of the last ones did."""
    now = session.scalar(select(func.count()).where(LeaseRow.status.in_(HOLDING)))
    past = session.execute(
        select(LeaseRow.claimed_at, LeaseRow.released_at)
        .where(LeaseRow.status == Status.RELEASED, LeaseRow.claimed_at.is_not(None))
        .order_by(LeaseRow.created_at.desc(), LeaseRow.id.desc())
        .limit(REMEMBERED)
    )
    return now, [(end - begin).total_seconds() for begin, end in past]


def overdue(session: Session) -> list[str]:
    """Return the ids of those who have waited for as long as they wanted to."""
    query = select(LeaseRow.id).where(_IN_QUEUE, LeaseRow.wait_until <= timeutils.utcnow())
    return list(session.scalars(query))


def deserted(session: Session, before: datetime.datetime) -> list[str]:
    """Return the ids of leases whose client promised to ask, and did not since *before*.

    They may have been given GPUs meanwhile: then nobody knows of it.
    """
    query = select(LeaseRow.id).where(
        LeaseRow.status.in_((Status.QUEUED, *HOLDING)), LeaseRow.waiter_seen_at < before
    )
    return list(session.scalars(query))


def is_silent(lease: LeaseRow, since: datetime.datetime) -> bool:
    """Is a lease's client still to be heard of, and was not since then?"""
    return lease.waiter_seen_at is not None and lease.waiter_seen_at < since


def heard(session: Session, lease_id: str) -> None:
    """Note that the client that waits for a lease is still there."""
    _note(session, lease_id, Status.QUEUED, timeutils.utcnow())


def answered(session: Session, lease_id: str) -> None:
    """Note that the client knows what became of its wait, and need not be watched any more."""
    _note(session, lease_id, None, None)


def leave(session: Session, lease_id: str, why: str | None = None) -> bool:
    """Give a place back; False if the lease is not in the queue.

    *why* is for its owner, unless it was he who asked for it. It is over at once: it held nothing.
    """
    lease = session.get(LeaseRow, lease_id, with_for_update=True, populate_existing=True)
    if lease is None or lease.status != Status.QUEUED:
        return False
    fault = {} if why is None else {"fault_step": STEP, "fault_message": why}
    leases.transition(session, lease_id, Event.RELEASE, why, waiter_seen_at=None, **fault)
    leases.transition(session, lease_id, Event.FINISH)
    return True


def _moments(client_timeout: float) -> dict[str, datetime.datetime]:
    now = timeutils.utcnow()
    return {"now": now, "heard_since": now - datetime.timedelta(seconds=client_timeout)}


def _note(
    session: Session, lease_id: str, status: Status | None, seen_at: datetime.datetime | None
) -> None:
    query = update(LeaseRow).where(LeaseRow.id == lease_id, LeaseRow.waiter_seen_at.is_not(None))
    if status is not None:
        query = query.where(LeaseRow.status == status)
    session.execute(
        query.values(waiter_seen_at=seen_at, updated_at=LeaseRow.updated_at).execution_options(
            synchronize_session=False
        )
    )
