# SPDX-License-Identifier: Apache-2.0
"""What all benchmarks report: the machine, medians, and whether bounds hold.

The function `run()` of a benchmark returns one plain object:

    {"bench": "claim", "machine": {...}, "rows": [{...}, ...],
     "reach": [{"what": "...", "value": 1.4, "bound": "<= 2.0"}, ...]}

"rows" are the measurements; rows with the same keys are printed as one table. Each "reach" is a number that is meant to
be on one side of a bound.
"""

from __future__ import annotations

import operator
import os
import platform
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from gsaasclient.cli.tables import facts, table

COMPARISONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


def machine() -> dict[str, Any]:
    """Return the properties of this machine that explain the numbers; not its name."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def median(values: list[float]) -> float:
    """Return the median: the middle value, or the mean of the two in the middle if their number is even."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def progress(text: str) -> None:
    """Print to standard error what a long benchmark is doing."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def holds(value: float, bound: str) -> bool:
    """Return whether *value* is within a bound such as `<= 2.0`."""
    comparison, limit = bound.split()
    return bool(COMPARISONS[comparison](value, float(limit)))


def readable(result: dict[str, Any]) -> str:
    """Return a result as text: the machine, a table for each kind of row, and whether each bound holds."""
    parts = [facts(result["machine"].items()), *_tables(result["rows"])]
    if reaches := result["reach"]:
        rows = [
            (
                reach["what"],
                _number(reach["value"]),
                reach["bound"],
                "holds" if holds(reach["value"], reach["bound"]) else "does not hold",
            )
            for reach in reaches
        ]
        parts.append(table(("reach", "measured", "bound", ""), rows))
    return "\n\n".join(parts)


def _tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table for each sequence of rows with the same columns."""
    for columns, alike in groupby(rows, key=tuple):
        headings = [column.replace("_", " ") for column in columns]
        yield table(headings, [[_number(value) for value in row.values()] for row in alike])


def _number(value: Any) -> Any:
    """Return a value as it is printed: numbers with four significant digits, a dash for a missing number."""
    if value is None:
        return "-"
    if isinstance(value, float):
        digits = f"{value:.4g}"
        return f"{value:.0f}" if "e" in digits and value >= 1 else digits
    return value
