# SPDX-License-Identifier: Apache-2.0
"""Reading, writing and moving leases; `gsaas.gpgpums` makes them. Rows become `gsaas.objects.lease.Lease` values here.

1. A status changes only by `transition` or `move`, which ask `gsaas.objects.lifecycle` and return the event to record.
2. `lock` keeps the row of a lease until the transaction ends, so two engines cannot both change it. Every change of a
   lease begins with it.
3. Released leases are history: they are found by their id, and listed only when asked for. `history` deletes them.
4. An engine takes the steps of a lease only while it owns the lease (`acquire_ownership`, `release_ownership`). The row
   lock of rule 2 covers one change; ownership covers what happens outside the database between two changes. Between
   its steps, the engine may watch the lease: others then need not ask the cloud about it.
5. What the caller asked of the cloud may contain passwords (`adminPass`, `user_data`). It is stored until the server
   exists or the lease ends, and no longer: `move` removes it.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Select,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
)
from sqlalchemy import insert as insert_rows
from sqlalchemy import update as update_rows

from gsaas import exceptions
from gsaas.db import changes as committed
from gsaas.db import claims as claim_rows
from gsaas.db import clock
from gsaas.db.models import ClaimRow, GpuRow, HostRow, LeaseEventRow, LeaseRow, table_of
from gsaas.db.ordering import order_of
from gsaas.objects import lifecycle
from gsaas.objects.access import Access
from gsaas.objects.lease import Claim, ClaimedGpu, GpuHost, Lease
from gsaas.objects.lifecycle import ENTITLED, LeaseEvent, Status

ASKING = (Status.QUEUED, Status.CLAIMED)
"""Statuses in which the server fields of the caller are still needed: the cloud has not been asked for the server."""
LIVE = tuple(status for status in Status if status is not Status.RELEASED)
COLUMNS = tuple(
    field.name for field in dataclasses.fields(Lease) if field.name not in ("claims", "others")
)
_WATCHED = "watched by "
"""What the column `driven_by` begins with while an engine watches a lease, and takes none of its steps."""
CHANGEABLE = frozenset(COLUMNS) - {"id", "status", "driven_by", "driven_until"}
"""Columns that `update` and the changes of a transition may set."""


class RecordedEvent(NamedTuple):
    """An event as it was recorded; *at* is UTC."""

    event: str
    status: str
    detail: str | None
    at: datetime.datetime


_LEASES, _CLAIMS, _EVENTS = table_of(LeaseRow), table_of(ClaimRow), table_of(LeaseEventRow)
_GPUS, _HOSTS = table_of(GpuRow), table_of(HostRow)

SORT_KEYS = {
    name: _LEASES.c[name]
    for name in (
        *("id", "name", "status", "project_id", "user_id", "created_at", "updated_at"),
        *("released_at", "queued_at", "wait_until", "kept_until", "priority", "count"),
        *("mode", "memory_mb", "locality", "policy", "access", "server_id", "server_host"),
    )
}
"""Columns that a list of leases may be sorted by."""

_SELECT = select(*(_LEASES.c[name] for name in COLUMNS))
_ONE = _SELECT.where(_LEASES.c.id == bindparam("this"))
_READ = _ONE
_LOCK = _ONE.with_for_update()
_LOCK_FREE = (
    _SELECT.where(_LEASES.c.id.in_(bindparam("these", expanding=True)))
    .order_by(_LEASES.c.id)
    .with_for_update(skip_locked=True)
)
_INSERT_LEASE = insert_rows(_LEASES)
_INSERT_CLAIMS = insert_rows(_CLAIMS)
_INSERT_EVENTS = insert_rows(_EVENTS)
_UPDATE_LEASE = update_rows(_LEASES).where(_LEASES.c.id == bindparam("this"))
_UPDATE_LEASES = update_rows(_LEASES).where(_LEASES.c.id.in_(bindparam("these", expanding=True)))

_OLDEST_FIRST = (_LEASES.c.created_at, _LEASES.c.id)
_UNSETTLED = (
    select(_LEASES.c.id)
    .where(
        or_(
            _LEASES.c.status.in_([Status.CLAIMED, Status.BOOTING, Status.RELEASING]),
            and_(
                _LEASES.c.status == Status.ERROR,
                or_(
                    exists().where(_CLAIMS.c.lease_id == _LEASES.c.id),
                    _LEASES.c.server_id.is_not(None),
                    _LEASES.c.bound_host.is_not(None),
                    _LEASES.c.admitted_address.is_not(None),
                ),
            ),
        )
    )
    .order_by(*_OLDEST_FIRST)
)
# By itself, so that the index finds it: most leases are ACTIVE.
_MOVING = (
    select(_LEASES.c.id)
    .where(_LEASES.c.moving.is_not(None), _LEASES.c.status == Status.ACTIVE)
    .order_by(*_OLDEST_FIRST)
)

_CLAIM_COLUMNS = tuple(
    _CLAIMS.c[field.name] for field in dataclasses.fields(Claim) if field.name != "claimed_gpu"
)
_HOST_COLUMNS = tuple(_HOSTS.c[field.name] for field in dataclasses.fields(GpuHost))
_HOST_WIDTH = len(_HOST_COLUMNS)
_CLAIMS_OF = (
    select(*_CLAIM_COLUMNS)
    .where(_CLAIMS.c.lease_id == bindparam("this"))
    .order_by(_CLAIMS.c.position)
)
_OF_THESE = _CLAIMS.c.lease_id.in_(bindparam("these", expanding=True))
_CLAIMS_OF_ALL = (
    select(*_CLAIM_COLUMNS).where(_OF_THESE).order_by(_CLAIMS.c.lease_id, _CLAIMS.c.position)
)
_CLAIMS_WITH_GPUS = select(
    *_CLAIM_COLUMNS, _GPUS.c.host_name, _GPUS.c.daemon_port, _GPUS.c.withdrawn_reason
).join_from(_CLAIMS, _GPUS)
_LOCATED_CLAIMS_OF = _CLAIMS_WITH_GPUS.where(_CLAIMS.c.lease_id == bindparam("this")).order_by(
    _CLAIMS.c.position
)
_LOCATED_CLAIMS_OF_ALL = _CLAIMS_WITH_GPUS.where(_OF_THESE).order_by(_CLAIMS.c.position)
_LOCATED_CLAIM_OF = (
    select(*_CLAIMS_WITH_GPUS.selected_columns, *_HOST_COLUMNS)
    .select_from(_CLAIMS.join(_GPUS).join(_HOSTS, _HOSTS.c.name == _GPUS.c.host_name))
    .where(_CLAIMS.c.lease_id == bindparam("this"))
)
"""The claim of a lease that has one, with its GPU and host: one statement instead of two."""
# Once for each host and not for each claim: a report in JSON is long.
_HOSTS_OF = select(*_HOST_COLUMNS).where(
    # Not EXISTS, with which SQLite looks at every host.
    _HOSTS.c.name.in_(
        select(_GPUS.c.host_name)
        .select_from(_CLAIMS.join(_GPUS))
        .where(_CLAIMS.c.lease_id == bindparam("this"))
    )
)
_HOSTS_NAMED = select(*_HOST_COLUMNS).where(_HOSTS.c.name.in_(bindparam("these", expanding=True)))
_LEASES_ON_GPUS = (
    select(_CLAIMS.c.lease_id)
    .where(_CLAIMS.c.gpu_uuid.in_(bindparam("these", expanding=True)))
    .distinct()
)
_EVENTS_OF = (
    select(_EVENTS.c.event, _EVENTS.c.status, _EVENTS.c.detail, _EVENTS.c.at)
    .where(_EVENTS.c.lease_id == bindparam("this"))
    .order_by(_EVENTS.c.id)
)
_AT_ONCE = 500
"""Leases whose claims are read by one statement; databases limit the parameters of a statement."""


def get(connection: Connection, lease_id: str, project_id: str | None = None) -> Lease:
    """Return one lease with its claims, their GPUs and hosts.

    With *project_id*, another project's lease is as unknown as one that never was: raises `NotFound`.
    """
    row = connection.execute(_READ, {"this": lease_id}).first()
    if row is None:
        raise exceptions.NotFound(noun="lease", id=lease_id)
    lease = Lease(*row)
    if project_id is not None and lease.project_id != project_id:
        raise exceptions.NotFound(noun="lease", id=lease_id, foreign=True)
    return located(connection, lease)


def lock(connection: Connection, lease_id: str) -> Lease:
    """Return a lease with its claims, without their GPUs, and keep its row locked until the transaction ends.

    Raises `NotFound`.
    """
    row = connection.execute(_LOCK, {"this": lease_id}).first()
    if row is None:
        raise exceptions.NotFound(noun="lease", id=lease_id)
    claims = connection.execute(_CLAIMS_OF, {"this": lease_id})
    return _with_claims(Lease(*row), [Claim(*claim) for claim in claims])


def lock_free(connection: Connection, lease_ids: Collection[str]) -> list[Lease]:
    """Lock several leases as `lock` does; leave out those that other transactions have locked, and unknown ones."""
    rows = connection.execute(_LOCK_FREE, {"these": list(lease_ids)})
    locked = [Lease(*row) for row in rows]
    claims: dict[str, list[Claim]] = defaultdict(list)
    for row in connection.execute(_CLAIMS_OF_ALL, {"these": [lease.id for lease in locked]}):
        claim = Claim(*row)
        claims[claim.lease_id].append(claim)
    return [_with_claims(lease, claims[lease.id]) for lease in locked]


def located(connection: Connection, lease: Lease) -> Lease:
    """Return *lease* with its claims as they are stored, each with its GPU and host."""
    if lease.count == 1:
        one = connection.execute(_LOCATED_CLAIM_OF, {"this": lease.id})
        found = [(row[:-_HOST_WIDTH], GpuHost(*row[-_HOST_WIDTH:])) for row in one]
        return _with_claims(lease, [_claim(row, {host.name: host}) for row, host in found])
    rows = connection.execute(_LOCATED_CLAIMS_OF, {"this": lease.id}).all()
    if not rows:
        return _with_claims(lease, [])
    on = connection.execute(_HOSTS_OF, {"this": lease.id})
    hosts = {row[0]: GpuHost(*row) for row in on}
    return _with_claims(lease, [_claim(row, hosts) for row in rows])


def page(
    connection: Connection,
    *,
    project_id: str | None = None,
    limit: int,
    marker: str | None = None,
    server_id: str | None = None,
    status: str | None = None,
    name: str | None = None,
    changed_since: datetime.datetime | None = None,
    sort: Sequence[tuple[str, bool]] = (),
    after: Sequence[Any] | None = None,
) -> list[Lease]:
    """Return up to *limit* leases after the lease *marker* that match all filters.

    Instead of a *marker*, *after* has the values of the row before the page: those of *sort*, and its id. *sort* are
    names of `SORT_KEYS`, each with whether it is descending; by default the oldest lease comes first. With
    *changed_since*, released leases are returned, too. Raises `BadRequest` if *marker* is not a lease that the caller
    may see.
    """
    query = _SELECT
    if status is not None:
        query = query.where(_LEASES.c.status == status)
    elif changed_since is None:
        # Live statuses are named one by one, so that an index finds them: the history may be long.
        query = query.where(_LEASES.c.status.in_(LIVE))
    if changed_since is not None:
        query = query.where(_LEASES.c.updated_at >= changed_since)
    if project_id is not None:
        query = query.where(_LEASES.c.project_id == project_id)
    if server_id is not None:
        query = query.where(_LEASES.c.server_id == server_id)
    if name is not None:
        query = query.where(_LEASES.c.name == name)
    order = order_of(SORT_KEYS, "id", sort, [("created_at", False)])
    if marker is not None:
        last = marked(connection, marker, project_id)
        after = [getattr(last, key.column.name) for key in order.keys]
    return read(connection, order.page(query, limit, after))


def read(connection: Connection, query: Select[Any]) -> list[Lease]:
    """Return the leases that *query* selects the `COLUMNS` of, with their claims, GPUs and hosts."""
    return located_all(connection, [Lease(*row) for row in connection.execute(query)])


def located_all(connection: Connection, leases: Sequence[Lease]) -> list[Lease]:
    """Return *leases* as `located` returns each of them, with fewer statements."""
    claims: dict[str, list[Claim]] = defaultdict(list)
    hosts: dict[str, GpuHost] = {}
    for first in range(0, len(leases), _AT_ONCE):
        ids = [lease.id for lease in leases[first : first + _AT_ONCE]]
        rows = connection.execute(_LOCATED_CLAIMS_OF_ALL, {"these": ids}).all()
        hosts.update(_hosts(connection, {row.host_name for row in rows} - hosts.keys()))
        for row in rows:
            claims[row.lease_id].append(_claim(row, hosts))
    return [_with_claims(lease, claims[lease.id]) for lease in leases]


def locate(
    connection: Connection, leases: Sequence[Lease], places: Mapping[str, tuple[str, int]]
) -> list[Lease]:
    """Return *leases* as `located` returns each of them, without reading the claims, which are those that are stored.

    *places* are the host and the daemon's port of each claimed GPU, by UUID; the GPUs are locked, and not withdrawn.
    """
    hosts = _hosts(connection, {host for host, _ in places.values()})
    gpus = {
        uuid: ClaimedGpu(uuid, port, None, hosts[host]) for uuid, (host, port) in places.items()
    }
    return [
        lease.with_(
            claims=tuple(replace(one, claimed_gpu=gpus[one.gpu_uuid]) for one in lease.claims)
        )
        for lease in leases
    ]


def select_leases(*conditions: Any) -> Select[Any]:
    """Return the query for `read` of the leases that meet all *conditions*, oldest first."""
    return _oldest_first(_SELECT.where(*conditions))


def marked(connection: Connection, marker: str, project_id: str | None = None) -> Lease:
    """Return the lease that a page begins after; raises `BadRequest` if the caller may not see such a lease."""
    try:
        return get(connection, marker, project_id)
    except exceptions.NotFound:
        raise exceptions.BadRequest(reason=f"the marker {marker} is not a lease") from None


def transition(
    connection: Connection,
    lease_id: str,
    event: lifecycle.Event,
    detail: str | None = None,
    **changes: Any,
) -> Lease:
    """Move a lease as *event* says, set the columns in *changes*, and record the event. Return the new lease.

    A lease that becomes RELEASED without having returned anything gets its time of release now.
    Raises `NotFound`, and `IllegalTransition` (which lists the past events) with everything as it was.
    """
    before = lock(connection, lease_id)
    lease, recorded = move(connection, before, event, detail, **changes)
    record_events(connection, lease_id, [recorded])
    return write(connection, lease, *changes, *moved_columns(before, lease))


def move(
    connection: Connection,
    lease: Lease,
    event: lifecycle.Event,
    detail: str | None = None,
    **changes: Any,
) -> tuple[Lease, LeaseEvent]:
    """Return a `lock`ed lease as it is after *event* with *changes*, and the event to record. Writes nothing.

    Raises `IllegalTransition`.
    """
    _check_columns(changes)
    before = Status(lease.status)
    status = lifecycle.next_status(before, event)
    if status is None:
        past = [one.event for one in events(connection, lease.id)]
        raise exceptions.IllegalTransition(
            id=lease.id, state=before, event=event, events=" -> ".join([*past, before])
        )
    if status is Status.RELEASED and lease.released_at is None:
        changes.setdefault("released_at", clock.now(connection))
    if status not in ASKING and lease.server_request:
        changes["server_request"] = {}
    return lease.with_(status=status, **changes), LeaseEvent(event, status, detail)


def moved_columns(before: Lease, after: Lease) -> set[str]:
    """Return the columns that `move` has changed between these two, other than those that its caller named."""
    columns = {"status"}
    if after.released_at != before.released_at:
        columns.add("released_at")
    if after.server_request != before.server_request:
        columns.add("server_request")
    return columns


def record_events(connection: Connection, lease_id: str, happened: Sequence[LeaseEvent]) -> None:
    """Record events of a lease, in order."""
    record_events_of(connection, {lease_id: happened})


def record_events_of(connection: Connection, happened: Mapping[str, Sequence[LeaseEvent]]) -> None:
    """Record events of leases, which are by lease id, in order."""
    at = clock.now(connection)
    each = [(lease_id, one) for lease_id, events in happened.items() for one in events]
    if not each:
        return
    rows = [{"lease_id": lease_id, "at": at, **one._asdict()} for lease_id, one in each]
    connection.execute(_INSERT_EVENTS, rows)
    if committed.is_wanted(connection):
        for lease_id, one in each:
            change = committed.LeaseChange(lease_id, one.event, one.status, at)
            committed.note(connection, change)


def insert(connection: Connection, lease: Lease) -> None:
    """Write a new lease, without its claims."""
    connection.execute(_INSERT_LEASE, _values(lease))


def insert_all(connection: Connection, leases: Sequence[Lease]) -> None:
    """Write new leases, without their claims."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for values in map(_values, leases):
        alike[tuple(values)].append(values)
    for rows in alike.values():
        connection.execute(_INSERT_LEASE, rows)


def _values(lease: Lease) -> dict[str, Any]:
    # Half of the columns of most leases are NULL, and each that is named takes its time.
    fields = vars(lease)
    return {name: value for name in COLUMNS if (value := fields[name]) is not None}


def insert_claims(connection: Connection, *leases: Lease) -> None:
    """Write the claims of leases that are stored already."""
    rows = [
        {column.name: getattr(claim, column.name) for column in _CLAIM_COLUMNS}
        for lease in leases
        for claim in (*lease.claims, *map(_mirrored, lease.others))
    ]
    if rows:
        connection.execute(_INSERT_CLAIMS, rows)


def write(connection: Connection, lease: Lease, *columns: str) -> Lease:
    """Write these columns of a `lock`ed lease, or all if none are named; return it with the time of the change."""
    lease = lease.with_(updated_at=clock.now(connection))
    changes = {name: getattr(lease, name) for name in {*(columns or COLUMNS), "updated_at"}}
    connection.execute(_UPDATE_LEASE, {"this": lease.id, **changes})
    return lease


def changed_columns(before: Lease, after: Lease) -> list[str]:
    """Return the columns in which two states of a lease differ."""
    return [name for name in COLUMNS if getattr(before, name) != getattr(after, name)]


def write_all(
    connection: Connection, changed: Sequence[tuple[Lease, Sequence[str]]]
) -> list[Lease]:
    """Write columns of `lock`ed leases; return the leases with the time of the change. Without columns, one stays.

    Leases that get the same values share a statement.
    """
    if len(changed) == 1:
        [(lease, columns)] = changed
        return [write(connection, lease, *columns)] if columns else [lease]
    now = clock.now(connection)
    same: dict[str, tuple[dict[str, Any], list[str]]] = {}
    written = []
    for lease, columns in changed:
        if columns:
            lease = lease.with_(updated_at=now)
            values = {name: getattr(lease, name) for name in sorted({*columns, "updated_at"})}
            same.setdefault(repr(values), (values, []))[1].append(lease.id)
        written.append(lease)
    for values, ids in same.values():
        connection.execute(_UPDATE_LEASES, {"these": ids, **values})
    return written


def update(connection: Connection, lease_id: str, **changes: Any) -> Lease:
    """Set columns of a lease, other than its status; return the new lease. Raises `NotFound`."""
    _check_columns(changes)
    return write(connection, lock(connection, lease_id).with_(**changes), *changes)


def acquire_ownership(
    connection: Connection,
    lease: Lease,
    engine: str,
    seconds: float,
    former: str | None = None,
    *,
    only_watch: bool = False,
) -> bool:
    """Make *engine* the owner of *lease* for *seconds*; False if another engine owns it, or the lease has changed.

    *former* is what is recorded of an engine that owned the lease and is known to be gone. An owner that acquires again
    extends its time. With *only_watch*, the engine does not take steps, and any other may become the owner.
    """
    now = clock.now(connection)
    until = now + datetime.timedelta(seconds=seconds)
    free = or_(
        _LEASES.c.driven_by.is_(None),
        _LEASES.c.driven_by.in_([engine, former or engine]),
        _LEASES.c.driven_by.startswith(_WATCHED),
        _LEASES.c.driven_until < now,
    )
    name = _WATCHED + engine if only_watch else engine
    acquired = connection.execute(
        update_rows(_LEASES)
        .where(_LEASES.c.id == lease.id, _LEASES.c.updated_at == lease.updated_at, free)
        .values(driven_by=name, driven_until=until, updated_at=_LEASES.c.updated_at)
    )
    return acquired.rowcount == 1


def release_ownership(
    connection: Connection, lease_id: str, engine: str, watch: float | None = None
) -> None:
    """Let other engines acquire a lease, if *engine* owns or watches it; it goes on watching for *watch* seconds."""
    values: dict[str, Any] = {"driven_by": None, "driven_until": None}
    if watch is not None:
        until = clock.now(connection) + datetime.timedelta(seconds=watch)
        values = {"driven_by": _WATCHED + engine, "driven_until": until}
    connection.execute(
        update_rows(_LEASES)
        .where(_LEASES.c.id == lease_id, _LEASES.c.driven_by.in_([engine, _WATCHED + engine]))
        .values(updated_at=_LEASES.c.updated_at, **values)
    )


def end_watches(connection: Connection, engine: str) -> None:
    """Let other engines watch every lease that *engine* watches."""
    connection.execute(
        update_rows(_LEASES)
        .where(_LEASES.c.driven_by == _WATCHED + engine)
        .values(driven_by=None, driven_until=None, updated_at=_LEASES.c.updated_at)
    )


def watcher(driven_by: str | None) -> str | None:
    """Return the engine that watches a lease with this column, without taking its steps; None if none does."""
    if driven_by is None or not driven_by.startswith(_WATCHED):
        return None
    return driven_by.removeprefix(_WATCHED)


def admit(
    connection: Connection,
    lease_id: str,
    project_id: str,
    statuses: Collection[Status],
    address: str,
) -> bool:
    """Record that the fences are to admit *address* for a lease with direct access; return whether it was recorded.

    One UPDATE does it, on condition that the lease is the project's, has one of *statuses*, admits no address yet and
    may admit this one. Of any number of concurrent calls, at most one returns True.
    """
    recorded = connection.execute(
        update_rows(_LEASES)
        .where(
            _LEASES.c.id == lease_id,
            _LEASES.c.project_id == project_id,
            _LEASES.c.status.in_(statuses),
            _LEASES.c.access == Access.DIRECT,
            _LEASES.c.admitted_address.is_(None),
            or_(_LEASES.c.consumer_address.is_(None), _LEASES.c.consumer_address == address),
        )
        .values(admitted_address=address, updated_at=clock.now(connection))
    )
    return recorded.rowcount == 1


def keep(connection: Connection, lease_id: str) -> Lease:
    """Extend a lease with a keepalive by that many seconds from now, and return it.

    A lease without a keepalive, or one that has ended, stays as it is. Raises `NotFound`.
    """
    lease = lock(connection, lease_id)
    if lease.keepalive is None or lease.kept_until is None or lease.status not in ENTITLED:
        return lease
    kept_until = clock.now(connection) + datetime.timedelta(seconds=lease.keepalive)
    return write(connection, lease.with_(kept_until=kept_until), "kept_until")


def abandoned(connection: Connection, now: datetime.datetime) -> list[str]:
    """Return the ids of the leases whose clients have been silent for longer than their keepalive."""
    query = select(_LEASES.c.id).where(_LEASES.c.kept_until < now, _LEASES.c.status.in_(ENTITLED))
    return list(connection.scalars(query))


def ending(connection: Connection, before: datetime.datetime) -> list[Lease]:
    """Return the leases without their claims that wait or have GPUs, and end by then."""
    statuses = (Status.QUEUED, *ENTITLED)
    query = _SELECT.where(_LEASES.c.status.in_(statuses), _LEASES.c.ends_at <= before)
    return [Lease(*row) for row in connection.execute(query)]


def events(connection: Connection, lease_id: str) -> list[RecordedEvent]:
    """Return all events of a lease, in order; none for a lease that never existed."""
    return [RecordedEvent(*row) for row in connection.execute(_EVENTS_OF, {"this": lease_id})]


def unsettled(connection: Connection) -> list[str]:
    """Return the ids of the leases for which the engine still has steps to take, oldest first.

    They are CLAIMED, BOOTING or RELEASING, or cGPUs of them move, or they are in ERROR with claims, a server, a binding
    or an admission left.
    """
    return [*connection.scalars(_UNSETTLED), *connection.scalars(_MOVING)]


def servers(connection: Connection, status: Status) -> list[tuple[str, str | None, str | None]]:
    """Return the id, the server and the server's host of all leases with *status*, oldest first."""
    query = select(_LEASES.c.id, _LEASES.c.server_id, _LEASES.c.server_host)
    rows = connection.execute(_oldest_first(query.where(_LEASES.c.status == status)))
    return [(row.id, row.server_id, row.server_host) for row in rows]


def active(connection: Connection) -> list[Lease]:
    """Return all ACTIVE leases without their claims, oldest first."""
    rows = connection.execute(_oldest_first(_SELECT.where(_LEASES.c.status == Status.ACTIVE)))
    return [Lease(*row) for row in rows]


def ids_of(
    connection: Connection, lease_ids: Collection[str], server_ids: Collection[str]
) -> list[str]:
    """Return the ids of the leases that have one of these ids, or one of these servers.

    A lease in ERROR has its plain server, too, although it has left that to its owner.
    """
    left = and_(_LEASES.c.plain_server_id.in_(server_ids), _LEASES.c.status == Status.ERROR)
    query = select(_LEASES.c.id).where(
        or_(_LEASES.c.id.in_(lease_ids), _LEASES.c.server_id.in_(server_ids), left)
    )
    return list(connection.scalars(query))


def servers_of(connection: Connection, lease_ids: Collection[str]) -> dict[str, str]:
    """Return the recorded servers of those of these leases that have one which GSaaS made, by lease."""
    mine = and_(_LEASES.c.id.in_(lease_ids), _LEASES.c.plain_server_id.is_(None))
    query = select(_LEASES.c.id, _LEASES.c.server_id).where(mine, _LEASES.c.server_id.is_not(None))
    return {row.id: row.server_id for row in connection.execute(query)}


def failed_of_plain_servers(connection: Connection) -> list[str]:
    """Return the ids of the leases in ERROR that plain servers have, oldest first."""
    failed = and_(_LEASES.c.status == Status.ERROR, _LEASES.c.plain_server_id.is_not(None))
    return list(connection.scalars(_oldest_first(select(_LEASES.c.id).where(failed))))


def of_server(connection: Connection, server_id: str) -> Lease | None:
    """Return the lease that a server has now, or had as a plain server; None if there is none."""
    mine = or_(_LEASES.c.server_id == server_id, _LEASES.c.plain_server_id == server_id)
    found = read(connection, select_leases(mine))
    return found[0] if found else None


def bound_to(connection: Connection, host: str) -> list[Lease]:
    """Return the leases whose binding the endpoint of *host* was told of: all that it should contain."""
    return read(connection, select_leases(_LEASES.c.bound_host == host))


def bindings_on(connection: Connection, host: str) -> list[tuple[str, str | None, str]]:
    """Return id, port and status of the leases of `bound_to`, without their other columns."""
    query = select(_LEASES.c.id, _LEASES.c.port_id, _LEASES.c.status)
    rows = connection.execute(_oldest_first(query.where(_LEASES.c.bound_host == host)))
    return [(row.id, row.port_id, row.status) for row in rows]


def on_gpus_of(connection: Connection, host: str) -> list[Lease]:
    """Return the leases that claim something of the GPUs of *host*, oldest first."""
    return on_gpus(connection, claim_rows.gpus_on(connection, host))


def on_gpus(connection: Connection, gpus: Sequence[str]) -> list[Lease]:
    """Return the leases that claim something of these GPUs, oldest first."""
    there = connection.scalars(_LEASES_ON_GPUS, {"these": gpus}).all() if gpus else ()
    return read(connection, select_leases(_LEASES.c.id.in_(there))) if there else []


def note(connection: Connection, lease_id: str, event: str, detail: str) -> None:
    """Record an event that does not change the status of a lease; does nothing if there is no such lease."""
    status = connection.scalar(select(_LEASES.c.status).where(_LEASES.c.id == lease_id))
    if status is not None:
        record_events(connection, lease_id, [LeaseEvent(event, status, detail)])


def stored(connection: Connection, project_id: str) -> int:
    """Return how many leases of a project are stored, released ones included."""
    query = select(func.count()).select_from(_LEASES).where(_LEASES.c.project_id == project_id)
    return connection.scalars(query).one()


def forget_daemons(
    connection: Connection, lease_id: str, host: str, *, only_others: bool = False
) -> None:
    """Note that no daemon of its own is left of a lease on *host*; their ports may be given to other leases.

    With *only_others*, that is so of those of `Lease.others`.
    """
    query = update_rows(_CLAIMS).where(
        _CLAIMS.c.lease_id == lease_id, _CLAIMS.c.daemon_host == host
    )
    if only_others:
        query = query.where(_CLAIMS.c.position < 0)
    connection.execute(
        query.values(daemon_host=None, daemon_port=None, daemon_device=0, daemon_turn=0)
    )


def _oldest_first(query: Select[Any]) -> Select[Any]:
    return query.order_by(*_OLDEST_FIRST)


def _hosts(connection: Connection, names: Collection[str]) -> dict[str, GpuHost]:
    """Return hosts of GPUs by name."""
    if not names:
        return {}
    rows = connection.execute(_HOSTS_NAMED, {"these": list(names)})
    return {row[0]: GpuHost(*row) for row in rows}


def _claim(row: Sequence[Any], hosts: Mapping[str, GpuHost]) -> Claim:
    """Return the claim of a row of `_CLAIMS_WITH_GPUS`."""
    host_name, daemon_port, withdrawn_reason = row[-3:]
    claim = Claim(*row[:-3])
    gpu = ClaimedGpu(claim.gpu_uuid, daemon_port, withdrawn_reason, hosts[host_name])
    return replace(claim, claimed_gpu=gpu)


def _with_claims(lease: Lease, claims: Sequence[Claim]) -> Lease:
    """Return *lease* with the claims of its rows, which are by position."""
    own = tuple(claim for claim in claims if claim.position >= 0)
    others = [_mirrored(claim) for claim in claims if claim.position < 0]
    return lease.with_(claims=own, others=tuple(reversed(others)))


def _mirrored(claim: Claim) -> Claim:
    """Return a claim of `Lease.others` with the position that its row has, and of its row with that of its cGPU."""
    return replace(claim, position=-1 - claim.position)


def _check_columns(changes: Mapping[str, Any]) -> None:
    """Raise `TypeError` for a name that is no column to change: that is a bug of the caller."""
    if unknown := changes.keys() - CHANGEABLE:
        raise TypeError(f"a lease has no column to change named {', '.join(sorted(unknown))}")
