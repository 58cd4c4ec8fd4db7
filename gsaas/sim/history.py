# SPDX-License-Identifier: Apache-2.0
"""A history: the requests that a simulation replays, each with its arrival time and its duration.

The file format is CSV with a header line and one request per line. Times are in seconds:

    arrival,duration,count,mode,memory_mb,project
    0,3600,2,shared,2048,physics
    12.5,600,1,exclusive,,chemistry
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from gsaas.objects.gpu import EXCLUSIVE, SHARED
from gsaas.objects.request import ANY, Request

COLUMNS = ("arrival", "duration", "count", "mode", "memory_mb", "project")


class HistoryError(Exception):
    """A history cannot be read. The message says where in the file, and why."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One request of a history: *count* cGPUs for *duration* seconds from when they are granted.

    *arrival* is in seconds since the history's beginning. *memory_mb* is the MiB of each cGPU in shared mode, and None
    in exclusive mode.
    """

    id: int
    arrival: float
    duration: float
    count: int
    mode: str
    memory_mb: int | None
    project: str = ""

    def request(self, locality: str = ANY) -> Request:
        """Return what it asks GPGPUMS for."""
        return Request(self.count, self.mode, self.memory_mb, locality)


def read(path: Path) -> list[Demand]:
    """Return the requests of a CSV file, sorted by arrival.

    Raises `HistoryError` if the file cannot be read, lacks a column, or has an invalid line.
    """
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = set(COLUMNS[:4]) - set(reader.fieldnames or ())
            if missing:
                raise HistoryError(f"{path} has no column {', '.join(sorted(missing))}")
            rows = [_demand(path, reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise HistoryError(f"{path} cannot be read: {error}") from error
    return sort_by_arrival(rows)


def write(file: TextIO, demands: Iterable[Demand]) -> None:
    """Write requests in the format that `read` reads."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for demand in demands:
        writer.writerow(
            [
                f"{demand.arrival:g}",
                f"{demand.duration:g}",
                demand.count,
                demand.mode,
                demand.memory_mb if demand.memory_mb is not None else "",
                demand.project,
            ]
        )


def sort_by_arrival(demands: Iterable[Demand]) -> list[Demand]:
    """Return the requests sorted by arrival, with new ids that count from 0."""
    ordered = sorted(demands, key=lambda demand: (demand.arrival, demand.id))
    return [
        Demand(
            number,
            demand.arrival,
            demand.duration,
            demand.count,
            demand.mode,
            demand.memory_mb,
            demand.project,
        )
        for number, demand in enumerate(ordered)
    ]


def span(demands: Sequence[Demand]) -> float:
    """Return the seconds from the first arrival to the last end, if no request had to wait; 0 without requests."""
    if not demands:
        return 0.0
    end = max(demand.arrival + demand.duration for demand in demands)
    return end - min(demand.arrival for demand in demands)


def _demand(path: Path, line: int, row: dict[str, str]) -> Demand:
    try:
        memory = row.get("memory_mb") or None
        demand = Demand(
            line,
            float(row["arrival"]),
            float(row["duration"]),
            int(row["count"]),
            row["mode"],
            None if memory is None else int(memory),
            row.get("project") or "",
        )
    except (TypeError, ValueError) as error:
        raise HistoryError(f"{path}, line {line}: {error}") from error
    if problem := _find_problem(demand):
        raise HistoryError(f"{path}, line {line}: {problem}")
    return demand


def _find_problem(demand: Demand) -> str | None:
    """Return why *demand* is no valid request; None if it is one."""
    if demand.mode not in (SHARED, EXCLUSIVE):
        return f"mode is {SHARED} or {EXCLUSIVE}, not {demand.mode!r}"
    if (demand.mode == SHARED) != (demand.memory_mb is not None):
        return "memory_mb is given in shared mode, and only there"
    if demand.memory_mb is not None and demand.memory_mb < 1:
        return f"a cGPU cannot have {demand.memory_mb} MiB"
    if demand.count < 1:
        return f"{demand.count} cGPUs cannot be asked for"
    if demand.arrival < 0 or demand.duration <= 0:
        return "arrival is not before 0, and duration is more than 0 seconds"
    return None
