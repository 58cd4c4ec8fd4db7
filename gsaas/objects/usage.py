# SPDX-License-Identifier: Apache-2.0
"""GPU usage in a period, summed by project. Pure: no database and no clock.

1. A lease counts from its claim until its GPUs are released, whether or not programs used them.
2. Only the part of that time within the period counts. A lease that still has its GPUs counts until now.
3. The usage is what the lease claimed: all memory of a whole GPU, its share of a shared one. Nothing is rounded.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

HOUR = 3600.0
"""Seconds."""


class LeaseUsage(NamedTuple):
    """The GPUs of one lease, and from when until when it had them; times are UTC."""

    project_id: str
    begin: datetime.datetime
    end: datetime.datetime | None
    """None if the lease still has them."""
    gpus: float
    """The number of GPUs; a part of a GPU counts as that fraction."""
    memory_mb: int
    """MiB of GPU memory."""


@dataclass(frozen=True)
class ProjectUsage:
    """The usage of one project in the period."""

    project_id: str
    leases: int
    """The number of leases that had GPUs in the period."""
    gpu_hours: float
    """GPUs times hours."""
    memory_mb_hours: float
    """MiB of GPU memory times hours."""


def by_project(
    usages: Iterable[LeaseUsage],
    start: datetime.datetime,
    end: datetime.datetime,
    now: datetime.datetime,
) -> list[ProjectUsage]:
    """Return the usage of each project from *start* until *end*, or until *now* if that is earlier.

    The projects are in the order of their ids; those without usage in the period are left out.
    """
    end = min(end, now)
    totals: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for usage in usages:
        until = end if usage.end is None else min(usage.end, end)
        hours = (until - max(usage.begin, start)).total_seconds() / HOUR
        if hours > 0:
            total = totals[usage.project_id]
            total[0] += 1
            total[1] += hours * usage.gpus
            total[2] += hours * usage.memory_mb
    return [
        ProjectUsage(project_id, int(leases), gpu_hours, memory_mb_hours)
        for project_id, (leases, gpu_hours, memory_mb_hours) in sorted(totals.items())
    ]
