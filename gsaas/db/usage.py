# SPDX-License-Identifier: Apache-2.0
"""What leases had in a period, from their history."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from gsaas.db.models import LeaseRow
from gsaas.objects.usage import LeaseUsage

AT_ONCE = 1000
"""Rows fetched at a time: there may be a million of them in a month."""


def lease_usages(
    session: Session,
    start: datetime.datetime,
    end: datetime.datetime,
    project_id: str | None = None,
) -> Iterator[LeaseUsage]:
    """Return what leases had from *start* until *end* (UTC): those of one project, or of all."""
    query = select(
        LeaseRow.project_id,
        LeaseRow.claimed_at,
        LeaseRow.released_at,
        LeaseRow.claimed_gpus,
        LeaseRow.claimed_mb,
    ).where(
        LeaseRow.claimed_at < end,
        or_(LeaseRow.released_at.is_(None), LeaseRow.released_at > start),
    )
    if project_id is not None:
        query = query.where(LeaseRow.project_id == project_id)
    return map(LeaseUsage._make, session.execute(query.execution_options(yield_per=AT_ONCE)))
