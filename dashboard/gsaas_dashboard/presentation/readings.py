# SPDX-License-Identifier: Apache-2.0
"""The readings of a lease as charts: one of each kind for each cGPU, and those of its masked path."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gsaas_dashboard.presentation.charts import Chart, Point, line

HOUR, DAY = "the last hour", "the last day"
LONGEST_HOUR = 120
"""Seconds of the interval of a series that is one of the last hour."""
RATES = {"MiB/s": 2**20, "KiB/s": 2**10, "B/s": 1}
"""Unit of a rate -> bytes per second."""


class Series(NamedTuple):
    """The charts of one period."""

    title: str
    charts: list[Chart]


def series(
    readings: Mapping[str, Any] | None, devices: Sequence[Mapping[str, Any]]
) -> list[Series]:
    """Return the charts of each period that has any, the shortest first.

    *readings* are those of the API, None where it has none; *devices* the cGPUs of the lease, whose memory is the upper
    end of the axis.
    """
    shares = {device["index"]: device.get("memory_mb") for device in devices}
    drawn = [
        Series(HOUR if each["seconds"] <= LONGEST_HOUR else DAY, _charts(each, shares))
        for each in (readings or {}).get("series") or ()
    ]
    return [each for each in drawn if each.charts]


def _charts(each: Mapping[str, Any], shares: Mapping[int, int | None]) -> list[Chart]:
    points = _with_gaps(each["points"], each["seconds"])
    indices = sorted(
        {cgpu["index"] for _, point in points for cgpu in (point or {}).get("cgpus") or ()}
    )
    found = []
    for index in indices:
        found += [
            line(
                f"cGPU {index}: utilisation", "%", _of_cgpu(points, index, "utilisation"), top=100
            ),
            line(
                f"cGPU {index}: memory",
                "MiB",
                _of_cgpu(points, index, "used_mb"),
                top=shares.get(index),
            ),
        ]
    found += [
        _rate("To the GPUs", _of_path(points, "sent_bytes_per_second")),
        _rate("From the GPUs", _of_path(points, "received_bytes_per_second")),
        line("Connections", "", _of_path(points, "connections")),
        line("Dropped packets", "", _of_path(points, "dropped_packets")),
    ]
    return [chart for chart in found if chart is not None]


_Timed = list[tuple[float, Mapping[str, Any] | None]]


def _with_gaps(points: Sequence[Mapping[str, Any]], seconds: float) -> _Timed:
    """Return the points by time, with None where the API left one out."""
    timed: _Timed = []
    for point in points:
        at = datetime.datetime.fromisoformat(point["at"]).timestamp()
        if timed and at - timed[-1][0] > 1.5 * seconds:
            timed.append((timed[-1][0] + seconds, None))
        timed.append((at, point))
    return timed


def _of_cgpu(points: _Timed, index: int, name: str) -> list[Point]:
    return [
        (
            at,
            next(
                (c.get(name) for c in (point or {}).get("cgpus") or () if c["index"] == index), None
            ),
        )
        for at, point in points
    ]


def _of_path(points: _Timed, name: str) -> list[Point]:
    return [(at, ((point or {}).get("path") or {}).get(name)) for at, point in points]


def _rate(title: str, points: Sequence[Point]) -> Chart | None:
    """Return the chart of bytes per second, in the largest unit that the highest rate reaches."""
    most = max((value for _, value in points if value is not None), default=0)
    unit = next((unit for unit, size in RATES.items() if most >= size), "B/s")
    scaled = [(at, None if value is None else value / RATES[unit]) for at, value in points]
    return line(title, unit, scaled)
