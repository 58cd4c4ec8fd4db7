# SPDX-License-Identifier: Apache-2.0
"""What projects use of their quotas, and the row that the claims of a project lock while that is counted."""

from __future__ import annotations

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    true,
    update,
)

from gsaas.db.database import OvertakenError
from gsaas.db.leases import LIVE
from gsaas.db.models import (
    ClaimRow,
    LeaseRow,
    ProjectRow,
    ReservationRow,
    ReservedShareRow,
    table_of,
)
from gsaas.objects.access import Access
from gsaas.objects.lifecycle import Status
from gsaas.objects.reservation import LIVE as LIVE_RESERVATIONS

_PROJECTS = table_of(ProjectRow)

_OF_LEASE = and_(ClaimRow.lease_id == LeaseRow.id, ClaimRow.position >= 0)
"""A cGPU that moves has two claims for a while, and counts once: nobody of its project has asked for that."""
COUNTED = tuple(status for status in LIVE if status is not Status.QUEUED)
"""Statuses of leases that count for quotas until their GPUs are returned."""

# Made once: a claim of a project with a quota executes each of them.
_CLAIMED = (
    select(
        func.count(LeaseRow.id.distinct()).label("leases"),
        func.count(ClaimRow.position).label("cgpus"),
        func.coalesce(func.sum(ClaimRow.memory_mb), 0).label("memory_mb"),
    )
    .join_from(LeaseRow, ClaimRow, _OF_LEASE, isouter=True)
    .where(
        LeaseRow.project_id == bindparam("project"),
        LeaseRow.status.in_(COUNTED),
        LeaseRow.released_at.is_(None),
    )
    .subquery()
)
_RESERVED = (
    select(
        func.count(ReservedShareRow.position).label("cgpus"),
        func.coalesce(func.sum(ReservedShareRow.memory_mb), 0).label("memory_mb"),
    )
    .join_from(ReservationRow, ReservedShareRow)
    .where(
        ReservationRow.project_id == bindparam("project"),
        ReservationRow.status.in_(LIVE_RESERVATIONS),
        ReservedShareRow.lease_id.is_(None),
    )
    .subquery()
)
# One statement: what a lease in a reservation returns is in one of both, whatever is committed meanwhile.
_USAGE = select(
    *(_CLAIMED.c.leases, _CLAIMED.c.cgpus, _CLAIMED.c.memory_mb),
    *(_RESERVED.c.cgpus, _RESERVED.c.memory_mb),
).join_from(_CLAIMED, _RESERVED, true())
_CHANGE = (
    update(_PROJECTS)
    .where(_PROJECTS.c.id == bindparam("project"))
    .values(serial=_PROJECTS.c.serial + 1)
)


def usage(connection: Connection, project_id: str) -> dict[str, int]:
    """Return how much of each limited resource the project has now, in leases and reservations together."""
    claimed, reserved = claimed_and_reserved(connection, project_id)
    return {name: claimed[name] + reserved[name] for name in claimed}


def claimed_and_reserved(
    connection: Connection, project_id: str
) -> tuple[dict[str, int], dict[str, int]]:
    """Return how much of each limited resource a project's leases have now, and how much its reservations have besides.

    A lease counts until its GPUs are returned, in any status; while it waits in the queue it does not count. A
    reservation counts from the request until it is over, but for what leases have of it.
    """
    row = connection.execute(_USAGE, {"project": project_id}).one()
    leases, cgpus, memory_mb, reserved_cgpus, reserved_mb = row
    return (
        {"cgpus": cgpus, "gpu_memory_mb": int(memory_mb), "leases": leases},
        {"cgpus": reserved_cgpus, "gpu_memory_mb": int(reserved_mb), "leases": 0},
    )


def projects_with(connection: Connection, cgpus: int) -> int:
    """Return how many projects have *cgpus* cGPUs or more now."""
    query = (
        select(LeaseRow.project_id)
        .join_from(LeaseRow, ClaimRow, _OF_LEASE)
        .where(LeaseRow.status.in_(COUNTED), LeaseRow.released_at.is_(None))
        .group_by(LeaseRow.project_id)
        .having(func.count() >= cgpus)
    )
    return len(connection.execute(query).all())


def leases_with(connection: Connection, access: Access) -> int:
    """Return how many leases that are not released have this *access*."""
    query = select(func.count()).select_from(LeaseRow)
    query = query.where(LeaseRow.access == access, LeaseRow.status.in_(COUNTED))
    return connection.scalars(query).one()


def purge(connection: Connection, at_most: int) -> int:
    """Delete up to *at_most* rows of projects that have no lease, released ones included; return how many.

    Claims may go on meanwhile: a row is of use only while a claim of its project is going on, and deleting it is never
    wrong. Such a claim has the row locked until it ends, and the deletion waits for it. A claim that waits for the
    deletion finds no row afterwards and inserts one, as the first claim of a project does; of two of these, one fails
    and starts again. In a Galera cluster, the deletion and the change of a row exclude each other as two changes do.
    """
    unused = ~exists().where(LeaseRow.project_id == ProjectRow.id)
    # MariaDB takes no LIMIT in the sub-query of an IN, so the ids are read first.
    query = select(ProjectRow.id).where(unused).order_by(ProjectRow.id).limit(at_most)
    ids = list(connection.scalars(query))
    if ids:
        connection.execute(delete(ProjectRow).where(ProjectRow.id.in_(ids)))
    return len(ids)


def lock(connection: Connection, project_id: str) -> None:
    """Lock the row of a project until the transaction ends; other claims of the project wait for it.

    The row is changed, and not only locked: the nodes of a Galera cluster do not know each other's locks, but of two
    transactions that change one row at two nodes, one fails at its commit. The first claim of a project inserts its
    row; raises `OvertakenError` if another claim inserted it just now.
    """
    if connection.execute(_CHANGE, {"project": project_id}).rowcount == 0:
        try:
            connection.execute(insert(ProjectRow).values(id=project_id, serial=0))
        except DBDuplicateEntry as error:
            raise OvertakenError from error
