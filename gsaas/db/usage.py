"""What leases held in a period, as their history says."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from gsaas.db.models import Lease
from gsaas.objects.usage import LeaseUsage

AT_ONCE = 1000
"""Rows fetched at a time: a month may have a million."""


def holdings(
    session: Session,
    start: datetime.datetime,
    end: datetime.datetime,
    project_id: str | None = None,
) -> Iterator[LeaseUsage]:
    """Read what leases held from *start* until *end* (UTC): those of one project, or of all."""
    query = select(
        Lease.project_id,
        Lease.claimed_at,
        Lease.released_at,
        Lease.claimed_gpus,
        Lease.claimed_mb,
    ).where(
        Lease.claimed_at < end,
        or_(Lease.released_at.is_(None), Lease.released_at > start),
    )
    if project_id is not None:
        query = query.where(Lease.project_id == project_id)
    return map(LeaseUsage._make, session.execute(query.execution_options(yield_per=AT_ONCE)))
