# SPDX-License-Identifier: Apache-2.0
"""The history of released leases, and the deletion of what was released long ago."""

from __future__ import annotations

import datetime

from sqlalchemy import ColumnElement, Connection, delete, func, select

from gsaas.db import readings
from gsaas.db.models import LeaseEventRow, LeaseRow, table_of
from gsaas.objects.lifecycle import Status

_LEASES, _EVENTS = table_of(LeaseRow), table_of(LeaseEventRow)
_AT_ONCE = 500
"""Leases that one statement names; databases limit the parameters of a statement."""


def released_before(connection: Connection, moment: datetime.datetime) -> int:
    """Return how many leases were released before *moment* (UTC), and are still stored."""
    query = select(func.count()).select_from(_LEASES).where(*_ended_before(moment))
    return connection.scalars(query).one()


def purge(connection: Connection, moment: datetime.datetime, at_most: int) -> int:
    """Delete up to *at_most* leases released before *moment* (UTC), with their events and readings; return how many."""
    # MariaDB takes no LIMIT in the sub-query of an IN, so the ids are read first.
    query = select(_LEASES.c.id).where(*_ended_before(moment)).order_by(_LEASES.c.created_at)
    ids = list(connection.scalars(query.limit(at_most)))
    for first in range(0, len(ids), _AT_ONCE):
        some = ids[first : first + _AT_ONCE]
        connection.execute(delete(_EVENTS).where(_EVENTS.c.lease_id.in_(some)))
        readings.forget(connection, some)
        connection.execute(delete(_LEASES).where(_LEASES.c.id.in_(some)))
    return len(ids)


def _ended_before(moment: datetime.datetime) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for leases that nothing can change any more, and that were released before *moment*."""
    # The last condition follows from the one before it; an index has the time of creation.
    ended = _LEASES.c.released_at < moment
    return _LEASES.c.status == Status.RELEASED, ended, _LEASES.c.created_at < moment
