# SPDX-License-Identifier: Apache-2.0
"""Usage by project: as bars, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gsaasclient import spreadsheets

HEADER = ("project_id", "project", "leases", "gpu_hours", "memory_mb_hours")
COSTS = ("cost", "unpriced_gpu_hours")
"""Further columns, if the operator has prices."""


class Bar(NamedTuple):
    """The usage of one project."""

    project: str
    leases: int
    gpu_hours: str
    gib_hours: str
    width: float
    """Percent of the longest bar."""
    cost: str = ""
    """Empty if the operator has no prices."""


def bars(projects: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> list[Bar]:
    """Return the usage of *projects*, as the API has it, largest first. *names* are those that are known, by id."""
    ordered = sorted(projects, key=lambda each: (-each["gpu_hours"], each["project_id"]))
    longest = max((each["gpu_hours"] for each in ordered), default=0)
    return [
        Bar(
            project=names.get(each["project_id"], each["project_id"]),
            leases=each["leases"],
            gpu_hours=f"{each['gpu_hours']:.2f}",
            gib_hours=f"{each['memory_mb_hours'] / 1024:.2f}",
            width=round(100 * each["gpu_hours"] / longest, 1) if longest else 0.0,
            cost=each.get("cost", ""),
        )
        for each in ordered
    ]


def as_csv(projects: Iterable[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    """Return the usage as CSV (RFC 4180), in the order of the API; no field of it is a formula."""
    text = io.StringIO()
    writer = csv.writer(text)
    found = list(projects)
    more = COSTS if any("cost" in each for each in found) else ()
    writer.writerow((*HEADER, *more))
    for each in found:
        named = {**each, "project": names.get(each["project_id"], "")}
        row = [named[column] for column in (*HEADER, *more)]
        writer.writerow(map(spreadsheets.cell, row))
    return text.getvalue()
