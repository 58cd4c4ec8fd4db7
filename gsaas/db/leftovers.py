# SPDX-License-Identifier: Apache-2.0
"""What rows of leases contain that this release does not know: left by a newer release, or one that is too old."""

from __future__ import annotations

from collections.abc import Collection
from importlib import metadata

from sqlalchemy import ColumnElement, Connection, func, select

from gsaas.db.models import LeaseRow, table_of
from gsaas.objects.lifecycle import Status

_LEASES = table_of(LeaseRow)


def unknown_values(connection: Connection) -> dict[str, dict[str, int]]:
    """Return how many leases have a status, or are alive with a remoting driver, that is not installed here."""
    alive = _LEASES.c.status.not_in([Status.RELEASED, Status.ERROR])
    drivers = {point.name for point in metadata.entry_points(group="gsaas.remoting")}
    return {
        "status": _count(connection, _LEASES.c.status, set(Status)),
        "remoting driver": _count(connection, _LEASES.c.remoting, drivers, alive),
    }


def _count(
    connection: Connection,
    column: ColumnElement[str],
    known: Collection[str],
    *conditions: ColumnElement[bool],
) -> dict[str, int]:
    """Return each value of *column* that is not *known*, and the number of its rows."""
    query = (
        select(column, func.count())
        .where(column.not_in(sorted(known)), *conditions)
        .group_by(column)
    )
    return {row[0]: row[1] for row in connection.execute(query)}
