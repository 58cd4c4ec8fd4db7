"""How much was held over a period, added up by project. Values in, values out; no database and no clock.

1. A lease counts from the moment it was given GPUs until these were given back, whether or not anybody used them.
2. Of that time only what lies in the period counts. A lease that still holds its GPUs counts until now.
3. What it held is what it claimed: of a whole GPU all memory, of a shared one its part. Nothing is rounded.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

HOUR = 3600.0


class Holding(NamedTuple):
    """What one lease held, and when; times are UTC."""

    project_id: str
    begin: datetime.datetime
    end: datetime.datetime | None
    """None: it still does."""
    gpus: float
    """A part of a GPU counts as that part."""
    memory_mb: int
    """MiB."""


@dataclass(frozen=True)
class Used:
    """What one project held in the period."""

    project_id: str
    leases: int
    """Those that held something in it."""
    gpu_hours: float
    memory_mb_hours: float
    """MiB times hours."""


def by_project(
    holdings: Iterable[Holding],
    start: datetime.datetime,
    end: datetime.datetime,
    now: datetime.datetime,
) -> list[Used]:
    """Add up what was held from *start* until *end*, by project, in the order of their ids."""
    end = min(end, now)
    totals: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for holding in holdings:
        until = end if holding.end is None else min(holding.end, end)
        hours = (until - max(holding.begin, start)).total_seconds() / HOUR
        if hours > 0:
            total = totals[holding.project_id]
            total[0] += 1
            total[1] += hours * holding.gpus
            total[2] += hours * holding.memory_mb
    return [
        Used(project_id, int(leases), gpu_hours, memory_mb_hours)
        for project_id, (leases, gpu_hours, memory_mb_hours) in sorted(totals.items())
    ]
