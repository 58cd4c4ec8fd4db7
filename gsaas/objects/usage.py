# SPDX-License-Identifier: Apache-2.0
"""GPU usage of a project in a period; `gsaas.db.usage` adds it up.

1. A lease counts from its claim until its GPUs are released, whether or not programs used them.
2. Only the part of that time within the period counts. A lease that still has its GPUs counts until now.
3. The usage is what the lease claimed: all memory of a whole GPU, its share of a shared one. Nothing is rounded.
4. A share may be another part of a GPU, of another model, once it has moved: each counts for as long as it lasted.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


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


@dataclass(frozen=True)
class Stint:
    """What a lease used until a move of it."""

    until: datetime.datetime
    """UTC; from its claim, or from the stint before."""
    gpus: float
    """`Lease.claimed_gpus` in that time."""
    models: str | None
    """`Lease.claimed_models` in that time."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"until": self.until.isoformat(), "gpus": self.gpus, "models": self.models}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Stint:
        """Undo `to_dict`."""
        return cls(datetime.datetime.fromisoformat(data["until"]), data["gpus"], data["models"])


def stints(
    past: Iterable[Mapping[str, Any]] | None,
    begin: datetime.datetime,
    first: datetime.datetime,
    last: datetime.datetime,
) -> Iterator[tuple[Stint, float]]:
    """Yield each stint of a lease that was claimed at *begin*, with its hours between *first* and *last*."""
    for stint in map(Stint.from_dict, past or ()):
        hours = (min(stint.until, last) - max(begin, first)).total_seconds() / 3600
        yield stint, max(0.0, hours)
        begin = stint.until


def gpu_hours(
    gpus: float | None,
    begin: datetime.datetime | None,
    end: datetime.datetime,
    past: Iterable[Mapping[str, Any]] | None = None,
) -> float | None:
    """Return the GPU-hours of a lease that had so many GPUs from *begin* until *end*; None if it never had any.

    *past* is what it used of that time before it moved: `Lease.past_usage`.
    """
    if gpus is None or begin is None:
        return None
    total = gpus * max(0.0, (end - begin).total_seconds()) / 3600
    return total + sum(
        (stint.gpus - gpus) * hours for stint, hours in stints(past, begin, begin, end)
    )
