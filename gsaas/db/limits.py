"""What a project holds, and the row that its claims queue up for while that is counted."""

from __future__ import annotations

from oslo_db.exception import DBDuplicateEntry
from sqlalchemy import Connection, func, insert, select
from sqlalchemy.orm import Session

from gsaas.db.database import OvertakenError
from gsaas.db.leases import LIVE
from gsaas.db.models import ClaimRow, LeaseRow, ProjectRow
from gsaas.objects.lifecycle import Status

HOLDING = tuple(status for status in LIVE if status is not Status.QUEUED)


def usage(connection: Connection | Session, project_id: str) -> dict[str, int]:
    """Return how much of each limited thing the project holds now.

    A lease counts until its GPUs are given back, in whatever status it is; while it waits for them
    it does not.
    """
    leases, cgpus, memory_mb = connection.execute(
        select(
            func.count(LeaseRow.id.distinct()),
            func.count(ClaimRow.position),
            func.coalesce(func.sum(ClaimRow.memory_mb), 0),
        )
        .join_from(LeaseRow, ClaimRow, isouter=True)
        .where(
            LeaseRow.project_id == project_id,
            LeaseRow.status.in_(HOLDING),
            LeaseRow.released_at.is_(None),
        )
    ).one()
    return {"cgpus": cgpus, "gpu_memory_mb": int(memory_mb), "leases": leases}


def hold(connection: Connection, project_id: str) -> None:
    """Keep other claims of the project waiting until this transaction ends.

    The first claim of a project makes its row; raises `OvertakenError` if another one just did.
    """
    query = select(ProjectRow.id).where(ProjectRow.id == project_id).with_for_update()
    if connection.scalar(query) is None:
        try:
            connection.execute(insert(ProjectRow).values(id=project_id))
        except DBDuplicateEntry as error:
            raise OvertakenError from error
