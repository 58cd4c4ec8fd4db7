# SPDX-License-Identifier: Apache-2.0
"""GPU usage of a project in a period; `gsaas.db.usage` adds it up.

1. A lease counts from its claim until its GPUs are released, whether or not programs used them.
2. Only the part of that time within the period counts. A lease that still has its GPUs counts until now.
3. The usage is what the lease claimed: all memory of a whole GPU, its share of a shared one. Nothing is rounded.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field


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
    hours_by_model: Mapping[str, float] = field(default_factory=dict)
    """Its GPU-hours by what names their price (`gsaas.objects.prices`); empty unless they were asked for."""


def gpu_hours(
    gpus: float | None, begin: datetime.datetime | None, end: datetime.datetime
) -> float | None:
    """Return the GPU-hours of a lease that had so many GPUs from *begin* until *end*; None if it never had any."""
    if gpus is None or begin is None:
        return None
    return gpus * max(0.0, (end - begin).total_seconds()) / 3600
