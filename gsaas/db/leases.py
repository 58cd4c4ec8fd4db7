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
from collections.abc import Callable, Collection, Sequence
from typing import Any

from oslo_utils import timeutils
from sqlalchemy import and_, bindparam, exists, or_, select
from sqlalchemy import insert as insert_rows
from sqlalchemy import update as update_rows
from sqlalchemy.orm import Session
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.sql.base import ExecutableOption

from gsaas import exceptions, lifecycle
from gsaas.db.models import Claim, Gpu, Host, Lease, LeaseEvent
from gsaas.lifecycle import Status

LIVE = tuple(status for status in Status if status is not Status.RELEASED)
KEPT = (Status.CLAIMED, Status.BOOTING, Status.ACTIVE)
"""Where a lease may have to be kept alive."""
CHANGEABLE = frozenset(column.key for column in Lease.__table__.columns) - {
    "id",
    "status",
    "driven_by",
    "driven_until",
}


def _default(default: Any) -> Callable[[], Any]:
    """What makes a column's default value."""
    return (lambda: default.arg(None)) if default.is_callable else (lambda: default.arg)


_INSERT_LEASE = insert_rows(Lease.__table__)
_HOLD_LEASE = (
    select(Lease.__table__).where(Lease.__table__.c.id == bindparam("this")).with_for_update()
)
_UPDATE_LEASE = update_rows(Lease.__table__).where(Lease.__table__.c.id == bindparam("this"))
_INSERT_CLAIMS = insert_rows(Claim.__table__)
_INSERT_EVENTS = insert_rows(LeaseEvent.__table__)
_LEASE = select(Lease.__table__).where(Lease.id == bindparam("this")).with_for_update()
_CLAIMS = (
    select(Claim.__table__).where(Claim.lease_id == bindparam("this")).order_by(Claim.position)
)
_UPDATE_LEASE = update_rows(Lease.__table__).where(Lease.__table__.c.id == bindparam("this"))
_PLACES = (
    select(*Gpu.__table__.columns, *Host.__table__.columns)
    .join_from(Gpu.__table__, Host.__table__)
    .where(Gpu.uuid.in_(bindparam("uuids", expanding=True)))
)
_NAMES = {kind: tuple(kind.__table__.columns.keys()) for kind in (Lease, Claim)}
_DEFAULTS = {
    kind: tuple(
        (column.key, _default(column.default))
        for column in kind.__table__.columns
        if column.default is not None
    )
    for kind in (Lease, Claim)
}
_GPU_COLUMNS = tuple(Gpu.__table__.columns.keys())
_HOST_COLUMNS = tuple(Host.__table__.columns.keys())


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
    move(session, lease, event, detail, **changes)
    session.flush()
    return lease


def move(
    session: Session,
    lease: Lease,
    event: lifecycle.Event,
    detail: str | None = None,
    **changes: Any,
) -> None:
    """Do what `transition` does to a lease whose row is held already; it is written with the next flush."""
    stands = Status(lease.status)
    past = []
    if (stands, event) not in lifecycle.TRANSITIONS:
        past = [happened.event for happened in story(session, lease.id)]
    status = lifecycle.next_status(lease.id, stands, event, past)
    _change(lease, changes)
    lease.status = status
    if status is Status.RELEASED and lease.released_at is None:
        lease.released_at = timeutils.utcnow()
    happened = {"lease_id": lease.id, "event": event, "status": status, "detail": detail}
    session.connection().execute(_INSERT_EVENTS, [happened])


def insert(session: Session, lease: Lease, events: Sequence[LeaseEvent]) -> None:
    """Write a new lease with its claims, and how its story begins. What it leaves open gets its default.

    These are plain statements, since every launch waits for them: the unit of work takes several times
    as long. So the session does not know *lease*, which can be read as it is.
    """
    _set_defaults(lease)
    session.connection().execute(_INSERT_LEASE, _values(lease))
    _insert_claims(session, lease, events)


def queued(session: Session, lease_id: str) -> Lease | None:
    """Return a lease that waits, its row held until the transaction ends; None if it waits no more.

    As after `insert`, the session does not know it.
    """
    row = session.connection().execute(_HOLD_LEASE, {"this": lease_id}).one()
    return Lease(**row._mapping, claims=[]) if row.status == Status.QUEUED else None


def serve(session: Session, lease: Lease, events: Sequence[LeaseEvent]) -> None:
    """Write what has become of a lease that was `queued`: its claims, and how its story goes on."""
    lease.updated_at = timeutils.utcnow()
    session.connection().execute(_UPDATE_LEASE, {"this": lease.id, **_values(lease)})
    _insert_claims(session, lease, events)


def _insert_claims(session: Session, lease: Lease, events: Sequence[LeaseEvent]) -> None:
    for claim in lease.claims:
        claim.lease_id = lease.id
        _set_defaults(claim)
    lease.events = list(events)
    connection = session.connection()
    connection.execute(_INSERT_CLAIMS, [_values(claim) for claim in lease.claims])
    connection.execute(
        _INSERT_EVENTS,
        [
            {
                "lease_id": lease.id,
                "event": event.event,
                "status": event.status,
                "detail": event.detail,
            }
            for event in events
        ],
    )


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


def copied(session: Session, lease_id: str) -> Lease:
    """Return a copy of a lease and of its claims, which the session does not know; else as `held`.

    For what everybody waits for: it takes a fraction of the time. `write` is the way back.
    """
    connection = session.connection()
    row = connection.execute(_LEASE, {"this": lease_id}).one_or_none()
    if row is None:
        raise exceptions.NotFound(noun="lease", id=lease_id)
    claims = [Claim(**claim._mapping) for claim in connection.execute(_CLAIMS, {"this": lease_id})]
    return Lease(**row._mapping, claims=claims)


def write(session: Session, lease: Lease, *columns: str) -> None:
    """Write these columns of a copy back."""
    lease.updated_at = timeutils.utcnow()
    changes = {name: getattr(lease, name) for name in (*columns, "updated_at")}
    session.connection().execute(_UPDATE_LEASE, {"this": lease.id, **changes})


def locate(session: Session, lease: Lease) -> None:
    """Read the GPUs and hosts of a copy's claims."""
    uuids = {claim.gpu_uuid for claim in lease.claims}
    gpus = {}
    for row in session.connection().execute(_PLACES, {"uuids": list(uuids)}):
        values = tuple(row)
        host = Host(**dict(zip(_HOST_COLUMNS, values[len(_GPU_COLUMNS) :], strict=True)))
        gpu = Gpu(**dict(zip(_GPU_COLUMNS, values[: len(_GPU_COLUMNS)], strict=True)))
        set_committed_value(gpu, "host", host)
        gpus[gpu.uuid] = gpu
    for claim in lease.claims:
        set_committed_value(claim, "gpu", gpus[claim.gpu_uuid])


def _set_defaults(row: Lease | Claim) -> None:
    for name, default in _DEFAULTS[type(row)]:
        if getattr(row, name) is None:
            setattr(row, name, default())


def _values(row: Lease | Claim) -> dict[str, Any]:
    # What was never set is not there, and asking for it costs more than looking.
    known = row.__dict__
    return {name: known[name] for name in _NAMES[type(row)] if known.get(name) is not None}


def _change(lease: Lease, changes: dict[str, Any]) -> None:
    """Set columns by name; any other name is a bug of the caller, and a `TypeError`."""
    if unknown := changes.keys() - CHANGEABLE:
        raise TypeError(f"a lease has no column to change named {', '.join(sorted(unknown))}")
    for column, value in changes.items():
        setattr(lease, column, value)
