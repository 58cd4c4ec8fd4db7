# SPDX-License-Identifier: Apache-2.0
"""Readings of leases: what their cGPUs and their masked paths did in the last day, and what each cGPU did in all.

1. A report is one statement, whatever it contains: it adds each reading to the rows of its slots, or overwrites these
   if their interval is over (`gsaas.objects.readings`). Nobody reads a row before it is written.
2. The tables refer to no other: a row is written without a lock of the lease, for which a claim would wait. Rows of
   leases that have ended are deleted with age, not with the lease.
3. The one row of a cGPU that sums up its whole life stays as long as the history has the lease.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    Case,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    or_,
    select,
    true,
)

from gsaas.db import claims as claim_rows
from gsaas.db.models import (
    CgpuReadingRow,
    ClaimRow,
    LeaseRow,
    PathReadingRow,
    table_of,
)
from gsaas.db.upsert import accumulate
from gsaas.objects.readings import (
    FRESH,
    QUIET_BYTES,
    RESOLUTIONS,
    SHOWN_FOR,
    WHOLE,
    CgpuInterval,
    PathInterval,
    beginning_of,
    latest,
    number_of,
    points,
    slots_of,
)

_CGPUS, _PATHS = table_of(CgpuReadingRow), table_of(PathReadingRow)
_CLAIMS, _LEASES = table_of(ClaimRow), table_of(LeaseRow)

_ZERO: ColumnElement[int] = literal_column("0")
_QUIET: ColumnElement[int] = literal_column(str(QUIET_BYTES))
_CLAIMED = (
    select(
        *(_CLAIMS.c.lease_id, _CLAIMS.c.position, _CLAIMS.c.gpu_uuid),
        # The one that is later. A cGPU that did not move counts as new for a moment, too.
        func.coalesce(_LEASES.c.moving_since, _LEASES.c.claimed_at),
    )
    .join_from(_CLAIMS, _LEASES)
    .where(_CLAIMS.c.gpu_uuid.in_(bindparam("gpus", expanding=True)))
)
KEPT = datetime.timedelta(days=1)
_SLICE = datetime.timedelta(minutes=10)
"""Rows that were last written within so long are deleted at once: a cluster limits the size of a transaction."""


class CgpuReading(NamedTuple):
    """What was read of a cGPU; None is not known."""

    lease_id: str
    position: int
    utilisation: float | None
    """Percent."""
    used_mb: int | None
    """MiB."""


class PathReading(NamedTuple):
    """The counters of the masked path of a lease."""

    lease_id: str
    sent_bytes: int
    received_bytes: int
    connections: int
    dropped_packets: int


class ClaimedCgpu(NamedTuple):
    """A cGPU of a lease that claims a GPU."""

    lease_id: str
    position: int
    """Its number in the lease; negative: it moves, and is served by another GPU soon, or by now."""
    gpu_uuid: str
    claimed_at: datetime.datetime | None
    """When the lease got its GPUs, or last began to move cGPUs to others."""


class Intervals(NamedTuple):
    """What is stored of one lease."""

    cgpus: list[CgpuInterval]
    paths: list[PathInterval]


def add_cgpus(
    connection: Connection, readings: Iterable[CgpuReading], now: datetime.datetime
) -> None:
    """Add readings of cGPUs, which were taken *now* (UTC).

    A cGPU of which nothing was read for long may have been in use meanwhile, so it counts as in use now.
    """
    # A constant that changes once a minute: each text is another statement to prepare.
    lately = beginning_of(number_of(now - FRESH, 60), 60).isoformat(" ", "microseconds")
    rows = [
        {
            **_key(reading.lease_id, slot._asdict(), now),
            "position": reading.position,
            "samples": int(reading.utilisation is not None),
            "utilisation_sum": reading.utilisation or 0.0,
            "used_mb": reading.used_mb,
            "utilisation_max": reading.utilisation,
        }
        for reading in sorted(readings)
        for slot in slots_of(now)
    ]

    def changes(new: Any) -> Mapping[str, Any]:
        old, same = _CGPUS.c, _CGPUS.c.number == new.number
        is_quiet = and_(new.samples > _ZERO, new.utilisation_sum == _ZERO)

        def most(name: str) -> Case[Any]:
            is_less = or_(new[name].is_(None), old[name] > new[name])
            return case((and_(same, is_less), old[name]), else_=new[name])

        return {
            "samples": case((same, old.samples + new.samples), else_=new.samples),
            "utilisation_sum": case(
                (same, old.utilisation_sum + new.utilisation_sum), else_=new.utilisation_sum
            ),
            "used_mb": most("used_mb"),
            "utilisation_max": most("utilisation_max"),
            "busy_at": case(
                (and_(is_quiet, old.at >= literal_column(f"'{lately}'")), old.busy_at),
                else_=new.at,
            ),
            "at": new.at,
            "number": new.number,
        }

    accumulate(connection, _CGPUS, rows, changes)


def add_paths(
    connection: Connection, readings: Iterable[PathReading], now: datetime.datetime
) -> None:
    """Add readings of masked paths, which were taken *now* (UTC)."""
    rows = [
        {**reading._asdict(), **_key(reading.lease_id, slot._asdict(), now)}
        for reading in sorted(readings)
        for slot in slots_of(now)
    ]

    def changes(new: Any) -> Mapping[str, Any]:
        old = _PATHS.c
        sent, received = new.sent_bytes - old.sent_bytes, new.received_bytes - old.received_bytes
        is_quiet = and_(sent >= _ZERO, received >= _ZERO, sent + received <= _QUIET)
        return {
            "busy_at": case((is_quiet, old.busy_at), else_=new.at),
            "sent_bytes": new.sent_bytes,
            "received_bytes": new.received_bytes,
            "connections": new.connections,
            "dropped_packets": new.dropped_packets,
            "at": new.at,
            "number": new.number,
        }

    accumulate(connection, _PATHS, rows, changes)


def of_lease(connection: Connection, lease_id: str) -> Intervals:
    """Return all that is stored of a lease."""
    return _read(connection, [lease_id]).get(lease_id, Intervals([], []))


def newest(
    connection: Connection, lease_ids: Collection[str], now: datetime.datetime
) -> dict[str, Intervals]:
    """Return the few rows of each lease that show its latest readings at *now*, and whether it is idle.

    Leases without any are left out.
    """
    minutes = RESOLUTIONS[0]
    current = number_of(now, minutes.seconds)
    # One more than is shown: rates are differences to the one before.
    slots = [(current - ago) % minutes.kept for ago in range(SHOWN_FOR + 2)]
    return _read(connection, lease_ids, slots)


def connections(
    connection: Connection, lease_ids: Collection[str], now: datetime.datetime
) -> dict[str, int]:
    """Return how many connections each of these leases had open at the last report of its endpoint.

    Those of which that is not known are left out.
    """
    minutes, found = RESOLUTIONS[0], {}
    for lease_id, rows in newest(connection, lease_ids, now).items():
        point = latest(points(minutes, rows.cgpus, rows.paths, now), now)
        if point is not None and point.path is not None and point.path.connections is not None:
            found[lease_id] = point.path.connections
    return found


def whole(connection: Connection, lease_ids: Collection[str]) -> dict[str, Intervals]:
    """Return the rows that sum up the whole lives of these leases. Leases without readings are left out."""
    return _read(connection, lease_ids, ())


def claimed_on(connection: Connection, host: str) -> list[ClaimedCgpu]:
    """Return the cGPUs of leases that claim GPUs of *host*."""
    gpus = claim_rows.gpus_on(connection, host)
    return [ClaimedCgpu(*row) for row in connection.execute(_CLAIMED, {"gpus": gpus})]


def forget_some(connection: Connection, now: datetime.datetime) -> bool:
    """Delete some of the rows that nobody has written for a day; return whether there may be more of them."""
    end = now - KEPT
    more = False
    # For each resolution by itself, as the index has them: those of whole lives may be a million.
    short = [_CGPUS.c.resolution == resolution.seconds for resolution in RESOLUTIONS]
    for table, rows in [*((_CGPUS, rows) for rows in short), (_PATHS, true())]:
        oldest = connection.scalar(select(func.min(table.c.at)).where(rows))
        if oldest is not None and oldest < end:
            until = min(end, oldest + _SLICE)
            connection.execute(delete(table).where(rows, table.c.at <= until))
            more = more or until < end
    return more


def forget(connection: Connection, lease_ids: Collection[str]) -> None:
    """Delete all rows of these leases."""
    for table in (_CGPUS, _PATHS):
        connection.execute(delete(table).where(table.c.lease_id.in_(lease_ids)))


def _key(
    lease_id: str, slot: Mapping[str, int], now: datetime.datetime
) -> dict[str, str | int | datetime.datetime]:
    """Return the columns that both tables have. What is seen first counts as in use until then."""
    return {"lease_id": lease_id, **slot, "at": now, "busy_at": now}


def _read(
    connection: Connection, lease_ids: Collection[str], minutes: Sequence[int] | None = None
) -> dict[str, Intervals]:
    """Return what is stored of these leases; with *minutes*, only `WHOLE` and the minutes in these slots."""
    found: dict[str, Intervals] = {}

    def rows_of(query: Select[Any], columns: Any) -> Any:
        return connection.execute(query.where(*_conditions(columns, lease_ids, minutes)))

    cgpu_columns = [_CGPUS.c[name] for name in CgpuInterval.__dataclass_fields__]
    for lease_id, *values in rows_of(select(_CGPUS.c.lease_id, *cgpu_columns), _CGPUS.c):
        found.setdefault(lease_id, Intervals([], [])).cgpus.append(CgpuInterval(*values))
    path_columns = [_PATHS.c[name] for name in PathInterval.__dataclass_fields__]
    for lease_id, *values in rows_of(select(_PATHS.c.lease_id, *path_columns), _PATHS.c):
        found.setdefault(lease_id, Intervals([], [])).paths.append(PathInterval(*values))
    return found


def _conditions(
    columns: Any, lease_ids: Collection[str], minutes: Sequence[int] | None
) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [columns.lease_id.in_(sorted(lease_ids))]
    if minutes is not None:
        newest_minutes = and_(
            columns.resolution == RESOLUTIONS[0].seconds, columns.slot.in_(minutes)
        )
        conditions.append(or_(columns.resolution == WHOLE, newest_minutes))
    return conditions
