# SPDX-License-Identifier: Apache-2.0
"""Rows that belong to no lease that may have them, and what leases that are over still have; and their removal.

No transaction of GSaaS leaves any. Tables that were changed by hand may have some, and so may a restored backup.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, or_, select, update

from gsaas.db import claims as claim_rows
from gsaas.db import leases, recount
from gsaas.db.models import ClaimRow, LeaseRow, ReservedShareRow, table_of
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status

_LEASES, _CLAIMS, _SHARES = table_of(LeaseRow), table_of(ClaimRow), table_of(ReservedShareRow)
_HAS_CLAIMS = exists().where(_CLAIMS.c.lease_id == _LEASES.c.id)
_AT_ONCE = 500
"""Leases that one statement names; databases limit the parameters of a statement."""


def stored(connection: Connection) -> list[Lease]:
    """Return the leases that are not released, and those released ones that still have something."""
    something = or_(
        _HAS_CLAIMS, _LEASES.c.bound_host.is_not(None), _LEASES.c.server_id.is_not(None)
    )
    left = and_(_LEASES.c.status == Status.RELEASED, something)
    query = leases.select_leases(or_(_LEASES.c.status.in_(leases.LIVE), left))
    return leases.read(connection, query)


def named(connection: Connection, lease_ids: Collection[str]) -> dict[str, Lease]:
    """Return those of these leases that are stored, in any status, by id."""
    ids = sorted(lease_ids)
    found: dict[str, Lease] = {}
    for first in range(0, len(ids), _AT_ONCE):
        some = _LEASES.c.id.in_(ids[first : first + _AT_ONCE])
        found |= {one.id: one for one in leases.read(connection, leases.select_leases(some))}
    return found


def claims(connection: Connection) -> dict[str, list[str]]:
    """Return the GPUs of the claims of leases that are not stored, or wait in the queue, by lease."""
    query = select(_CLAIMS.c.lease_id, _CLAIMS.c.gpu_uuid).where(_orphaned_claim())
    found: dict[str, list[str]] = defaultdict(list)
    for lease_id, gpu_uuid in connection.execute(query.order_by(_CLAIMS.c.lease_id)):
        found[lease_id].append(gpu_uuid)
    return dict(found)


def delete_claims(connection: Connection, lease_id: str) -> None:
    """Delete the claims that `claims` finds of one lease, and count again what is claimed of their GPUs."""
    mine = and_(_CLAIMS.c.lease_id == lease_id, _orphaned_claim())
    gpus = sorted(set(connection.scalars(select(_CLAIMS.c.gpu_uuid).where(mine))))
    claim_rows.lock_gpus(connection, gpus, waits=True)  # the lease may be served just now
    connection.execute(delete(_CLAIMS).where(mine))
    for uuid in gpus:
        recount.recount(connection, uuid)


def shares(connection: Connection) -> Mapping[str, list[str]]:
    """Return the reservations with shares that leases without any claim are said to have, by lease."""
    query = select(_SHARES.c.lease_id, _SHARES.c.reservation_id).where(_orphaned_share())
    found: dict[str, list[str]] = defaultdict(list)
    for lease_id, reservation_id in connection.execute(query.order_by(_SHARES.c.lease_id)):
        found[lease_id].append(reservation_id)
    return found


def free_shares(connection: Connection, lease_id: str) -> None:
    """Free the shares that `shares` finds of one lease. They are kept again as soon as their GPUs have room."""
    mine = and_(_SHARES.c.lease_id == lease_id, _orphaned_share())
    gpus = sorted(set(connection.scalars(select(_SHARES.c.gpu_uuid).where(mine))))
    claim_rows.lock_gpus(connection, gpus, waits=True)
    connection.execute(update(_SHARES).where(mine).values(lease_id=None, kept=False))


def _orphaned_claim() -> ColumnElement[bool]:
    may_have = and_(_LEASES.c.id == _CLAIMS.c.lease_id, _LEASES.c.status != Status.QUEUED)
    return ~exists().where(may_have)


def _orphaned_share() -> ColumnElement[bool]:
    return and_(
        _SHARES.c.lease_id.is_not(None), ~exists().where(_CLAIMS.c.lease_id == _SHARES.c.lease_id)
    )
