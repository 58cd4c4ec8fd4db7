# SPDX-License-Identifier: Apache-2.0
"""Reservations, their shares, and what is kept for them of GPUs.

1. Whoever places a reservation calls `begin_placing` before it reads others: it changes one row, so that of two
   transactions that place reservations at once the second sees what the first has written, also at another node of a
   Galera cluster. Whoever moves shares changes the same row at the end, if it is as it was (`confirm_placing`): it
   waits for nobody while it has GPUs locked, and nobody waits for it if nothing moves.
2. Shares change only on condition that they are as the caller read them. `OvertakenError` says that they are not.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)

from gsaas import exceptions
from gsaas.db import changes, clock
from gsaas.db.database import OvertakenError
from gsaas.db.models import (
    GpuRow,
    HostRow,
    PoolVersionRow,
    ReservationRow,
    ReservedShareRow,
    table_of,
)
from gsaas.db.ordering import order_of
from gsaas.db.pool_versions import ONLY
from gsaas.objects.placement import Share
from gsaas.objects.reservation import (
    LIVE,
    Reservation,
    ReservationEvent,
    ReservationStatus,
    ReservedShare,
)

OVER_KEPT = 100
"""Reservations of a project that stay stored after they are over, so that nobody can fill the database with them."""
_AT_ONCE = 500
"""Rows that one statement names; databases limit the parameters of a statement."""

_RESERVATIONS, _SHARES = table_of(ReservationRow), table_of(ReservedShareRow)
_GPUS, _HOSTS, _VERSIONS = table_of(GpuRow), table_of(HostRow), table_of(PoolVersionRow)

_IS_LIVE = _RESERVATIONS.c.status.in_(LIVE)
_WAITING = (
    select(_RESERVATIONS.c.id)
    .where(
        _IS_LIVE,
        _RESERVATIONS.c.start_at <= bindparam("before"),
        exists().where(_SHARES.c.reservation_id == _RESERVATIONS.c.id, _SHARES.c.kept.is_(False)),
    )
    .order_by(_RESERVATIONS.c.start_at)
)

SORT_KEYS = {
    **{
        name: _RESERVATIONS.c[name]
        for name in ("id", "name", "status", "project_id", "user_id", "created_at")
    },
    "start": _RESERVATIONS.c.start_at,
    "end": _RESERVATIONS.c.end_at,
}
"""Columns that a list of reservations may be sorted by."""

_SELECT = select(
    *(
        _RESERVATIONS.c[name]
        for name in (
            *("id", "project_id", "user_id", "name", "status", "cgpus"),
            *("start_at", "end_at", "created_at"),
        )
    )
)


def prepare_placing(connection: Connection) -> None:
    """Make the row that `begin_placing` changes, in a transaction of its own: copies of the GPUs notice a new row.

    Raises `OvertakenError` if another transaction made it just now.
    """
    if connection.scalar(select(_VERSIONS.c.id).where(_VERSIONS.c.id == ONLY)) is None:
        try:
            connection.execute(insert(_VERSIONS).values(id=ONLY, gpus=0, hosts=0, endpoints=0))
        except DBDuplicateEntry as error:
            raise OvertakenError from error


def begin_placing(connection: Connection) -> None:
    """Let no other transaction place a reservation until this one ends."""
    row = update(_VERSIONS).where(_VERSIONS.c.id == ONLY)
    connection.execute(row.values(reservations=_VERSIONS.c.reservations + 1))


def placings(connection: Connection) -> int:
    """Return a number that changes with each placing, for `confirm_placing`. Call it before reservations are read."""
    found = connection.scalar(select(_VERSIONS.c.reservations).where(_VERSIONS.c.id == ONLY))
    return found or 0


def confirm_placing(connection: Connection, seen: int) -> None:
    """Raise `OvertakenError` if another transaction has placed a reservation since `placings` returned *seen*."""
    changed = connection.execute(
        update(_VERSIONS)
        .where(_VERSIONS.c.id == ONLY, _VERSIONS.c.reservations == seen)
        .values(reservations=seen + 1)
    )
    if changed.rowcount != 1:
        raise OvertakenError


def store(connection: Connection, reservation: Reservation) -> None:
    """Write a new reservation."""
    fields = {name: getattr(reservation, name) for name in ("id", "project_id", "user_id", "name")}
    connection.execute(
        insert(_RESERVATIONS).values(
            **fields,
            status=reservation.status,
            cgpus=dict(reservation.cgpus),
            start_at=reservation.start,
            end_at=reservation.end,
            created_at=reservation.created_at,
        )
    )
    rows = [{"reservation_id": reservation.id, **vars(share)} for share in reservation.shares]
    connection.execute(insert(_SHARES), rows)
    _note(connection, reservation.id, ReservationEvent.CREATE, reservation.status)


def forget_old(connection: Connection, project_id: str) -> None:
    """Delete the reservations of a project that are over, but for the newest `OVER_KEPT`."""
    over = select(_RESERVATIONS.c.id).where(
        _RESERVATIONS.c.project_id == project_id, _RESERVATIONS.c.status.not_in(LIVE)
    )
    newest_first = (_RESERVATIONS.c.created_at.desc(), _RESERVATIONS.c.id)
    # MariaDB takes no LIMIT in the sub-query of an IN, so the ids are read first.
    ids = list(connection.scalars(over.order_by(*newest_first).offset(OVER_KEPT).limit(_AT_ONCE)))
    if ids:
        connection.execute(delete(_SHARES).where(_SHARES.c.reservation_id.in_(ids)))
        connection.execute(delete(_RESERVATIONS).where(_RESERVATIONS.c.id.in_(ids)))


def get(
    connection: Connection,
    reservation_id: str,
    project_id: str | None = None,
    *,
    lock: bool = False,
) -> Reservation:
    """Return a reservation; with *lock*, keep its row and its shares locked until the transaction ends.

    With *project_id*, another project's is as unknown as one that never was: raises `NotFound`.
    """
    query = _SELECT.where(_RESERVATIONS.c.id == reservation_id)
    found = _read(connection, query, lock=lock)
    if not found:
        raise exceptions.NotFound(noun="reservation", id=reservation_id)
    if project_id is not None and found[0].project_id != project_id:
        raise exceptions.NotFound(noun="reservation", id=reservation_id, foreign=True)
    return found[0]


def live(connection: Connection) -> list[Reservation]:
    """Return all reservations that have shares, the earliest first."""
    return _read(connection, _SELECT.where(_IS_LIVE).order_by(_RESERVATIONS.c.start_at))


def waiting(connection: Connection, before: datetime.datetime) -> list[str]:
    """Return the ids of the reservations that begin by *before* and lack some of their shares, the earliest first."""
    return list(connection.scalars(_WAITING, {"before": before}))


def gpus_of(connection: Connection, found: Iterable[Reservation]) -> dict[str, Any]:
    """Return the columns that say whether they are in service of all GPUs of these reservations, by UUID.

    Those that are gone are left out.
    """
    uuids = {share.gpu_uuid for one in found for share in one.shares}
    columns = (
        *(_GPUS.c.uuid, _GPUS.c.disabled, _GPUS.c.withdrawn_reason),
        *(_HOSTS.c.name.label("host"), _HOSTS.c.disabled.label("host_disabled")),
        *(_HOSTS.c.monitor_seen_at, _HOSTS.c.monitor_interval),
    )
    query = select(*columns).join_from(_GPUS, _HOSTS).where(_GPUS.c.uuid.in_(uuids))
    return {row.uuid: row for row in connection.execute(query)} if uuids else {}


def page(
    connection: Connection,
    *,
    project_id: str | None = None,
    statuses: Collection[str] = LIVE,
    limit: int,
    marker: str | None = None,
    sort: Sequence[tuple[str, bool]] = (),
) -> list[Reservation]:
    """Return up to *limit* reservations after the one whose id is *marker*, with one of *statuses*.

    They are those of a project; None: of all. *sort* are names of `SORT_KEYS`, each with whether it is descending; by
    default the earliest comes first. Raises `BadRequest` if *marker* is not a reservation that the caller may see.
    """
    query = _SELECT.where(_RESERVATIONS.c.status.in_(statuses))
    if project_id is not None:
        query = query.where(_RESERVATIONS.c.project_id == project_id)
    order = order_of(SORT_KEYS, "id", sort, [("start", False)])
    after = None
    if marker is not None:
        last = connection.execute(_SELECT.where(_RESERVATIONS.c.id == marker)).one_or_none()
        if last is None or project_id not in (None, last.project_id):
            raise exceptions.BadRequest(reason=f"the marker {marker} is not a reservation")
        after = [getattr(last, key.column.name) for key in order.keys]
    return _read(connection, order.page(query, limit, after))


def number_of(connection: Connection, project_id: str) -> int:
    """Return how many reservations of a project have shares."""
    query = select(func.count()).select_from(_RESERVATIONS)
    query = query.where(_RESERVATIONS.c.project_id == project_id, _IS_LIVE)
    return connection.scalars(query).one()


def rename(connection: Connection, reservation_id: str, name: str) -> None:
    """Give a reservation another name."""
    one = update(_RESERVATIONS).where(_RESERVATIONS.c.id == reservation_id)
    connection.execute(one.values(name=name))


def set_status(connection: Connection, reservation: Reservation, status: ReservationStatus) -> None:
    """Give a reservation another status; raises `OvertakenError` if it has another one than it had."""
    changed = connection.execute(
        update(_RESERVATIONS)
        .where(_RESERVATIONS.c.id == reservation.id, _RESERVATIONS.c.status == reservation.status)
        .values(status=status)
    )
    if changed.rowcount != 1:
        raise OvertakenError
    event = ReservationEvent.END if status not in LIVE else ReservationEvent.START
    _note(connection, reservation.id, event, status)


def keep(connection: Connection, reservation: Reservation, shares: Iterable[ReservedShare]) -> None:
    """Note that *shares* are kept, of GPUs that the caller changes; raises `OvertakenError` if one has changed."""
    for share in shares:
        values = {"kept": True, "memory_mb": share.memory_mb}
        _change(connection, reservation.id, share, _SHARES.c.kept.is_(False), **values)


def move(
    connection: Connection,
    reservation: Reservation,
    status: str,
    moves: Collection[tuple[ReservedShare, Share]],
) -> None:
    """Note that shares of a reservation move to other GPUs, where nothing is kept for them yet.

    *status* is what it has by now. Raises `OvertakenError` if one of them is not as it was.
    """
    for share, to in moves:
        same = _SHARES.c.lease_id.is_(None) & _SHARES.c.kept.is_(share.kept)
        values = {"gpu_uuid": to.gpu_uuid, "memory_mb": to.memory_mb, "kept": False}
        _change(connection, reservation.id, share, same, **values)
    moved_from = {share.position: share.gpu_uuid for share, _ in moves}
    _note(connection, reservation.id, ReservationEvent.MOVE, status, moved_from)


def take(
    connection: Connection,
    reservation: Reservation,
    shares: Iterable[ReservedShare],
    lease_id: str,
) -> None:
    """Note that a lease claims these shares, whose GPUs the claim changes; raises `OvertakenError`."""
    for share in shares:
        free = _SHARES.c.lease_id.is_(None) & _SHARES.c.kept.is_(True)
        _change(connection, reservation.id, share, free, lease_id=lease_id)


def lock_shares_of(connection: Connection, lease_id: str) -> list[Share]:
    """Return the shares of a reservation that a lease has; keep their rows locked until the transaction ends."""
    mine = select(_SHARES.c.gpu_uuid, _SHARES.c.memory_mb).where(_SHARES.c.lease_id == lease_id)
    return [Share(*row) for row in connection.execute(mine.with_for_update())]


def give_back(connection: Connection, lease_id: str) -> None:
    """Note that a lease has none of its shares any more."""
    connection.execute(update(_SHARES).where(_SHARES.c.lease_id == lease_id).values(lease_id=None))


def lose(connection: Connection, host: str) -> None:
    """Keep nothing any more on the GPUs of *host*, whose rows the caller deletes next, and which no lease claims."""
    # Locked, so that nothing more is kept on them before they are gone.
    gpus = select(_GPUS.c.uuid).where(_GPUS.c.host_name == host).order_by(_GPUS.c.uuid)
    uuids = connection.scalars(gpus.with_for_update()).all()
    if uuids:
        on_them = update(_SHARES).where(_SHARES.c.gpu_uuid.in_(uuids))
        connection.execute(on_them.values(kept=False, lease_id=None))


def drop(connection: Connection, reservation: Reservation) -> None:
    """Note that nothing is kept any more for a reservation. Leases that were launched in it go on."""
    own = _SHARES.c.reservation_id == reservation.id
    connection.execute(update(_SHARES).where(own).values(kept=False, lease_id=None))


def _change(
    connection: Connection,
    reservation_id: str,
    share: ReservedShare,
    condition: ColumnElement[bool],
    **values: object,
) -> None:
    """Change a share that meets *condition*; raises `OvertakenError` if it does not."""
    changed = connection.execute(
        update(_SHARES)
        .where(
            _SHARES.c.reservation_id == reservation_id,
            _SHARES.c.position == share.position,
            _SHARES.c.gpu_uuid == share.gpu_uuid,
            condition,
        )
        .values(**values)
    )
    if changed.rowcount != 1:
        raise OvertakenError


def _note(
    connection: Connection,
    reservation_id: str,
    event: ReservationEvent,
    status: str,
    moved_from: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """Record an event, which is announced after the commit."""
    if changes.is_wanted(connection):
        at = clock.now(connection)
        change = changes.ReservationChange(reservation_id, event, str(status), at, moved_from)
        changes.note(connection, change)


def _read(connection: Connection, query: Select[Any], *, lock: bool = False) -> list[Reservation]:
    rows = connection.execute(query.with_for_update() if lock else query).all()
    ids = [row.id for row in rows]
    columns = (_SHARES.c[name] for name in ReservedShare.__dataclass_fields__)
    all_shares = select(_SHARES.c.reservation_id, *columns).order_by(_SHARES.c.position)
    if lock:
        all_shares = all_shares.with_for_update()
    shares: dict[str, list[ReservedShare]] = defaultdict(list)
    for first in range(0, len(ids), _AT_ONCE):
        some = _SHARES.c.reservation_id.in_(ids[first : first + _AT_ONCE])
        for owner, *values in connection.execute(all_shares.where(some)):
            shares[owner].append(ReservedShare(*values))
    return [
        Reservation(
            id=row.id,
            project_id=row.project_id,
            user_id=row.user_id,
            name=row.name,
            status=row.status,
            cgpus=row.cgpus,
            start=row.start_at,
            end=row.end_at,
            created_at=row.created_at,
            shares=tuple(shares[row.id]),
        )
        for row in rows
    ]
