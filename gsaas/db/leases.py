"""Reading and moving leases; `gsaas.gpgpums.claims` makes them.

1. A status changes only in `transition`, which asks `gsaas.lifecycle` and adds to the story.
2. Whoever changes a lease holds its row until the transaction ends, so two engines cannot both
   move it.
3. Released leases are history: they are found by their id, and listed only when asked for.
4. An engine takes a lease's steps only while it holds the lease (`hold`, `let_go`). The row lock of rule 2 covers
   one change; this covers what happens outside the database between two of them.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection
from typing import Any

from oslo_utils import timeutils
from sqlalchemy import and_, or_, select
from sqlalchemy import update as update_rows
from sqlalchemy.orm import Session

from gsaas import exceptions, lifecycle
from gsaas.db.models import Lease, LeaseEvent
from gsaas.lifecycle import Status

LIVE = tuple(status for status in Status if status is not Status.RELEASED)
CHANGEABLE = frozenset(column.key for column in Lease.__table__.columns) - {
    "id",
    "status",
    "driven_by",
    "driven_until",
}


def get(session: Session, lease_id: str, project_id: str | None = None) -> Lease:
    """Return one lease with its claims, GPUs and hosts.

    With *project_id*, another project's lease is as unknown as one that never was: `NotFound`.
    """
    query = select(Lease).where(Lease.id == lease_id)
    if project_id is not None:
        query = query.where(Lease.project_id == project_id)
    lease = session.scalar(query)
    if lease is None:
        raise exceptions.NotFound(noun="lease", id=lease_id)
    return lease


def page(
    session: Session,
    *,
    project_id: str | None = None,
    limit: int,
    marker: str | None = None,
    server_id: str | None = None,
    status: str | None = None,
    name: str | None = None,
) -> list[Lease]:
    """Return up to *limit* leases after the lease *marker*, oldest first, that match all filters.

    Raises `BadRequest` if *marker* is not a lease that the caller could have seen.
    """
    query = select(Lease).order_by(Lease.created_at, Lease.id).limit(limit)
    # Live statuses are named one by one, so that an index finds them: the history may be long.
    query = query.where(Lease.status.in_(LIVE) if status is None else Lease.status == status)
    if project_id is not None:
        query = query.where(Lease.project_id == project_id)
    if server_id is not None:
        query = query.where(Lease.server_id == server_id)
    if name is not None:
        query = query.where(Lease.name == name)
    if marker is not None:
        try:
            last = get(session, marker, project_id)
        except exceptions.NotFound:
            raise exceptions.BadRequest(reason=f"the marker {marker} is not a lease") from None
        # The first condition follows from the second; it tells an index where to begin.
        query = query.where(
            Lease.created_at >= last.created_at,
            or_(Lease.created_at > last.created_at, Lease.id > last.id),
        )
    return list(session.scalars(query))


def transition(
    session: Session,
    lease_id: str,
    event: lifecycle.Event,
    detail: str | None = None,
    **changes: Any,
) -> Lease:
    """Move a lease as *event* says, set the columns in *changes*, and add to its story.

    A lease that becomes RELEASED without having given back anything gets its time of release now.
    Raises `NotFound`, and `IllegalTransition` (which tells the story) with everything as it was.
    """
    lease = _held(session, lease_id)
    past = session.scalars(
        select(LeaseEvent.event).where(LeaseEvent.lease_id == lease_id).order_by(LeaseEvent.id)
    )
    status = lifecycle.next_status(lease_id, Status(lease.status), event, list(past))
    _change(lease, changes)
    lease.status = status
    if status is Status.RELEASED and lease.released_at is None:
        lease.released_at = timeutils.utcnow()
    session.add(LeaseEvent(lease_id=lease_id, event=event, status=status, detail=detail))
    session.flush()
    return lease


def update(session: Session, lease_id: str, **changes: Any) -> Lease:
    """Set columns of a lease, other than its status. Raises `NotFound`."""
    lease = _held(session, lease_id)
    _change(lease, changes)
    session.flush()
    return lease


def hold(
    session: Session,
    lease: Lease,
    engine: str,
    until: datetime.datetime,
    former: str | None = None,
) -> bool:
    """Have *engine* drive *lease* until then: True if it may, False if another does, or the lease has changed.

    *former* is an engine that drove the lease and is known to be gone. Holding again what is held extends it.
    """
    free = or_(
        Lease.driven_by.is_(None),
        Lease.driven_by.in_([engine, former or engine]),
        Lease.driven_until < timeutils.utcnow(),
    )
    held = session.execute(
        update_rows(Lease)
        .where(Lease.id == lease.id, Lease.updated_at == lease.updated_at, free)
        .values(driven_by=engine, driven_until=until, updated_at=Lease.updated_at)
        .execution_options(synchronize_session=False)
    )
    return held.rowcount == 1


def let_go(session: Session, lease_id: str, engine: str) -> None:
    """Let others drive a lease, if *engine* holds it."""
    session.execute(
        update_rows(Lease)
        .where(Lease.id == lease_id, Lease.driven_by == engine)
        .values(driven_by=None, driven_until=None, updated_at=Lease.updated_at)
        .execution_options(synchronize_session=False)
    )


def story(session: Session, lease_id: str) -> list[LeaseEvent]:
    """Return all that happened to a lease, in order; nothing for one that never was."""
    query = select(LeaseEvent).where(LeaseEvent.lease_id == lease_id).order_by(LeaseEvent.id)
    return list(session.scalars(query))


def unsettled(session: Session) -> list[str]:
    """Return the ids of the leases that the engine still has work with, oldest first.

    They are on their way somewhere, or in ERROR and still hold claims, a server or a binding.
    """
    holds = or_(Lease.claims.any(), Lease.server_id.is_not(None), Lease.bound_host.is_not(None))
    moving = Lease.status.in_([Status.CLAIMED, Status.BOOTING, Status.RELEASING])
    query = (
        select(Lease.id)
        .where(or_(moving, and_(Lease.status == Status.ERROR, holds)))
        .order_by(Lease.created_at, Lease.id)
    )
    return list(session.scalars(query))


def ids(session: Session, status: Status) -> list[str]:
    """Return the ids of all leases with *status*, oldest first."""
    query = select(Lease.id).where(Lease.status == status).order_by(Lease.created_at, Lease.id)
    return list(session.scalars(query))


def named(session: Session, lease_ids: Collection[str], server_ids: Collection[str]) -> list[str]:
    """Return the ids of the leases that have one of these ids, or one of these servers."""
    query = select(Lease.id).where(or_(Lease.id.in_(lease_ids), Lease.server_id.in_(server_ids)))
    return list(session.scalars(query))


def bound_to(session: Session, host: str) -> list[Lease]:
    """Return the leases whose binding the endpoint of *host* was told of: all it should hold."""
    query = select(Lease).where(Lease.bound_host == host).order_by(Lease.created_at, Lease.id)
    return list(session.scalars(query))


def _held(session: Session, lease_id: str) -> Lease:
    lease = session.get(Lease, lease_id, with_for_update=True, populate_existing=True)
    if lease is None:
        raise exceptions.NotFound(noun="lease", id=lease_id)
    return lease


def _change(lease: Lease, changes: dict[str, Any]) -> None:
    """Set columns by name; any other name is a bug of the caller, and a `TypeError`."""
    if unknown := changes.keys() - CHANGEABLE:
        raise TypeError(f"a lease has no column to change named {', '.join(sorted(unknown))}")
    for column, value in changes.items():
        setattr(lease, column, value)
