"""Reading and moving leases; `gsaas.gpgpums.claims` makes them.

1. A status changes only in `transition`, which asks `gsaas.objects.lifecycle` and adds to the story.
2. Whoever changes a lease holds its row until the transaction ends, so two engines cannot both
   move it.
3. Released leases are history: they are found by their id, and listed only when asked for.
4. What everybody waits for, a claim and a release, is done to plain values, by statements on a connection.
5. An engine takes a lease's steps only while it holds the lease (`hold`, `let_go`). The row lock of rule 2 covers
   one change; this covers what happens outside the database between two of them.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from oslo_utils import timeutils
from sqlalchemy import Connection, and_, bindparam, exists, or_, select
from sqlalchemy import insert as insert_rows
from sqlalchemy import update as update_rows
from sqlalchemy.orm import Session
from sqlalchemy.sql.base import ExecutableOption

from gsaas import exceptions
from gsaas.db import plain
from gsaas.db.models import Claim, Gpu, Host, Lease, LeaseEvent
from gsaas.db.prepared import Prepared
from gsaas.objects import lifecycle
from gsaas.objects.lifecycle import Status

LIVE = tuple(status for status in Status if status is not Status.RELEASED)
KEPT = (Status.CLAIMED, Status.BOOTING, Status.ACTIVE)
"""Where a lease may have to be kept alive."""
CHANGEABLE = frozenset(column.key for column in Lease.__table__.columns) - {
    "id",
    "status",
    "driven_by",
    "driven_until",
}


class Happened(NamedTuple):
    """What a lease's story is told: *event*, the *status* after it, and a *detail*."""

    event: str
    status: str
    detail: str | None = None


_LEASES, _CLAIMS, _EVENTS = Lease.__table__, Claim.__table__, LeaseEvent.__table__
_INSERT_LEASE = Prepared(insert_rows(_LEASES))
_INSERT_CLAIMS = Prepared(insert_rows(_CLAIMS))
_INSERT_EVENTS = Prepared(insert_rows(_EVENTS))
_ONE = select(_LEASES).where(_LEASES.c.id == bindparam("this"))
_SEEN = Prepared(_ONE)
_LEASE = Prepared(_ONE.with_for_update())
_CLAIMS_OF = Prepared(
    select(_CLAIMS).where(_CLAIMS.c.lease_id == bindparam("this")).order_by(_CLAIMS.c.position)
)
_UPDATE_LEASE = Prepared(update_rows(_LEASES).where(_LEASES.c.id == bindparam("this")))
_PLACES = Prepared(
    select(*Gpu.__table__.columns, *Host.__table__.columns)
    .select_from(_CLAIMS)
    .join(Gpu.__table__)
    .join(Host.__table__)
    .where(_CLAIMS.c.lease_id == bindparam("this"))
)
_PAST = (
    select(_EVENTS.c.event).where(_EVENTS.c.lease_id == bindparam("this")).order_by(_EVENTS.c.id)
)


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
        last = marked(session, marker, project_id)
        # The first condition follows from the second; it tells an index where to begin.
        query = query.where(
            Lease.created_at >= last.created_at,
            or_(Lease.created_at > last.created_at, Lease.id > last.id),
        )
    return list(session.scalars(query))


def marked(session: Session, marker: str, project_id: str | None = None) -> Lease:
    """Return the lease that a page begins after; raises `BadRequest` if the caller knows none such."""
    try:
        return get(session, marker, project_id)
    except exceptions.NotFound:
        raise exceptions.BadRequest(reason=f"the marker {marker} is not a lease") from None


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
    lease = held(session, lease_id)
    connection = session.connection()
    tell(connection, lease, [move(connection, lease, event, detail, **changes)])
    session.flush()
    return lease


def move(
    connection: Connection,
    lease: plain.AnyLease,
    event: lifecycle.Event,
    detail: str | None = None,
    **changes: Any,
) -> Happened:
    """Do what `transition` does to a lease whose row is held already, and leave the writing to the caller.

    Returns what is to be told of it.
    """
    before = Status(lease.status)
    status = lifecycle.next_status(before, event)
    if status is None:
        past = connection.scalars(_PAST, {"this": lease.id}).all()
        raise exceptions.IllegalTransition(
            id=lease.id, state=before, event=event, events=" -> ".join([*past, before])
        )
    _change(lease, changes)
    lease.status = status
    if status is Status.RELEASED and lease.released_at is None:
        lease.released_at = timeutils.utcnow()
    return Happened(event, status, detail)


def tell(connection: Connection, lease: plain.AnyLease, happened: Sequence[Happened]) -> None:
    """Add to the story of a lease."""
    at = timeutils.utcnow()
    rows = [{"lease_id": lease.id, "at": at, **one._asdict()} for one in happened]
    _INSERT_EVENTS.run_all(connection, rows)


def insert(connection: Connection, lease: plain.Lease) -> None:
    """Write a new lease, without its claims. What it leaves open gets its default."""
    values = lease.complete()
    # Half of the columns of most leases are NULL, and each that is named takes its time.
    _INSERT_LEASE.run(
        connection, **{name: values[name] for name in values if values[name] is not None}
    )


def queued(connection: Connection, lease_id: str) -> plain.Lease | None:
    """Return a lease that waits, its row held until the transaction ends; None if it waits no more."""
    lease = plain.Lease.of(_LEASE.rows(connection, this=lease_id)[0])
    lease.claims = []
    return lease if lease.status == Status.QUEUED else None


def serve(connection: Connection, lease: plain.Lease) -> None:
    """Write what has become of a lease that was `queued`, without its claims."""
    lease.updated_at = timeutils.utcnow()
    _UPDATE_LEASE.run(connection, this=lease.id, **lease.values())


def insert_claims(connection: Connection, lease: plain.Lease) -> None:
    """Write the claims of a lease that is there."""
    for claim in lease.claims:
        claim.lease_id = lease.id
    _INSERT_CLAIMS.run_all(connection, [claim.complete() for claim in lease.claims])


def update(session: Session, lease_id: str, **changes: Any) -> Lease:
    """Set columns of a lease, other than its status. Raises `NotFound`."""
    lease = held(session, lease_id)
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


def keep(session: Session, lease_id: str) -> Lease:
    """Let a lease that has to be kept alive go on for as long as its keepalive says, from now.

    One that lasts anyway, or has ended, stays as it is. Raises `NotFound`.
    """
    lease = held(session, lease_id)
    if lease.kept_until is not None and lease.status in KEPT:
        lease.kept_until = timeutils.utcnow() + datetime.timedelta(seconds=lease.keepalive)
        session.flush()
    return lease


def is_abandoned(lease: Lease, now: datetime.datetime) -> bool:
    """Whether nobody has kept a lease alive."""
    return lease.status in KEPT and lease.kept_until is not None and lease.kept_until < now


def abandoned(session: Session, now: datetime.datetime) -> list[str]:
    """Return the ids of the leases that nobody has kept alive."""
    query = select(Lease.id).where(Lease.kept_until < now, Lease.status.in_(KEPT))
    return list(session.scalars(query))


def story(session: Session, lease_id: str) -> list[LeaseEvent]:
    """Return all that happened to a lease, in order; nothing for one that never was."""
    query = select(LeaseEvent).where(LeaseEvent.lease_id == lease_id).order_by(LeaseEvent.id)
    return list(session.scalars(query))


def unsettled(session: Session) -> list[str]:
    """Return the ids of the leases that the engine still has work with, oldest first.

    They are on their way somewhere, or in ERROR and still hold claims, a server or a binding.
    """
    holds = or_(
        Lease.claims.any(),
        Lease.server_id.is_not(None),
        Lease.bound_host.is_not(None),
        Lease.admitted_address.is_not(None),
    )
    moving = Lease.status.in_([Status.CLAIMED, Status.BOOTING, Status.RELEASING])
    query = (
        select(Lease.id)
        .where(or_(moving, and_(Lease.status == Status.ERROR, holds)))
        .order_by(Lease.created_at, Lease.id)
    )
    return list(session.scalars(query))


def whereabouts(session: Session, status: Status) -> list[tuple[str, str | None, str | None]]:
    """Return the id, the server and the server's host of all leases with *status*, oldest first."""
    query = (
        select(Lease.id, Lease.server_id, Lease.server_host)
        .where(Lease.status == status)
        .order_by(Lease.created_at, Lease.id)
    )
    return [tuple(row) for row in session.execute(query)]


def is_ready(lease: Lease) -> bool:
    """Whether the consumer of a lease that stands alone can use it as soon as it has its claims."""
    own_daemons = any(claim.daemon_port is not None for claim in lease.claims)
    return not lease.has_server and lease.bound_host is None and not own_daemons


def holds_only_claims(lease: Lease) -> bool:
    """Whether nothing but its claims has to be given back: nobody has to be told of its end first."""
    return (
        not lease.has_server
        and lease.bound_host is None
        and lease.admitted_address is None
        and all(claim.daemon_port is None for claim in lease.claims)
    )


def named(session: Session, lease_ids: Collection[str], server_ids: Collection[str]) -> list[str]:
    """Return the ids of the leases that have one of these ids, or one of these servers."""
    query = select(Lease.id).where(or_(Lease.id.in_(lease_ids), Lease.server_id.in_(server_ids)))
    return list(session.scalars(query))


def bound_to(session: Session, host: str) -> list[Lease]:
    """Return the leases whose binding the endpoint of *host* was told of: all it should hold."""
    query = select(Lease).where(Lease.bound_host == host).order_by(Lease.created_at, Lease.id)
    return list(session.scalars(query))


def on_gpus_of(session: Session, host: str) -> list[Lease]:
    """Return the leases that claim something of the GPUs of *host*, oldest first."""
    holds = exists().where(
        Claim.lease_id == Lease.id, Claim.gpu_uuid == Gpu.uuid, Gpu.host_name == host
    )
    return list(session.scalars(select(Lease).where(holds).order_by(Lease.created_at, Lease.id)))


def note(session: Session, lease_id: str, event: str, detail: str) -> None:
    """Add something to the story of a lease that does not change its status; one that is not there is no fault."""
    status = session.scalar(select(Lease.status).where(Lease.id == lease_id))
    if status is not None:
        session.add(LeaseEvent(lease_id=lease_id, event=event, status=status, detail=detail))


def forget_daemons(session: Session, lease_id: str, host: str) -> None:
    """Note that no daemon of its own is left of a lease on *host*; their ports may be given to others."""
    session.execute(
        update_rows(Claim)
        .where(Claim.lease_id == lease_id, Claim.daemon_host == host)
        .values(daemon_host=None, daemon_port=None)
        .execution_options(synchronize_session=False)
    )


def held(session: Session, lease_id: str, *options: ExecutableOption) -> Lease:
    """Return a lease whose row nobody else changes until the transaction ends. Raises `NotFound`."""
    lease = session.get(
        Lease, lease_id, options=options, with_for_update=True, populate_existing=True
    )
    if lease is None:
        raise exceptions.NotFound(noun="lease", id=lease_id)
    return lease


def known(connection: Connection, lease_id: str) -> plain.Lease:
    """Return a lease with its claims, their GPUs and hosts as plain values. Raises `NotFound`."""
    lease = _copied(connection, lease_id, _SEEN)
    locate(connection, lease)
    return lease


def copied(connection: Connection, lease_id: str) -> plain.Lease:
    """Return a lease with its claims as plain values; else as `held`. `write` is the way back."""
    return _copied(connection, lease_id, _LEASE)


def _copied(connection: Connection, lease_id: str, query: Prepared) -> plain.Lease:
    rows = query.rows(connection, this=lease_id)
    if not rows:
        raise exceptions.NotFound(noun="lease", id=lease_id)
    lease = plain.Lease.of(rows[0])
    lease.claims = [plain.Claim.of(row) for row in _CLAIMS_OF.rows(connection, this=lease_id)]
    return lease


def write(connection: Connection, lease: plain.Lease, *columns: str) -> None:
    """Write these columns of a `copied` lease back."""
    lease.updated_at = timeutils.utcnow()
    changes = {name: getattr(lease, name) for name in (*columns, "updated_at")}
    _UPDATE_LEASE.run(connection, this=lease.id, **changes)


def locate(connection: Connection, lease: plain.Lease) -> None:
    """Read the GPUs and hosts of the claims of a lease, which are written."""
    gpus = {}
    own = len(plain.Gpu.columns)
    for row in _PLACES.rows(connection, this=lease.id):
        gpu = plain.Gpu.of(row[:own])
        gpu.host = plain.Host.of(row[own:])
        gpus[gpu.uuid] = gpu
    for claim in lease.claims:
        claim.gpu = gpus[claim.gpu_uuid]


def _change(lease: plain.AnyLease, changes: dict[str, Any]) -> None:
    """Set columns by name; any other name is a bug of the caller, and a `TypeError`."""
    if unknown := changes.keys() - CHANGEABLE:
        raise TypeError(f"a lease has no column to change named {', '.join(sorted(unknown))}")
    for column, value in changes.items():
        setattr(lease, column, value)
