# SPDX-License-Identifier: Apache-2.0
"""A series of numbers as a line chart in SVG: only the geometry, which a template writes down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gsaas_dashboard.presentation.quantities import ceiling

WIDTH, HEIGHT = 340, 120
LEFT, TOP, RIGHT, BOTTOM = 48, 10, 8, 22
"""Pixels: the size of a chart, and what it leaves around its plot for the numbers of its axes."""

Point = tuple[float, float | None]
"""Seconds since any moment, and a value; None where nothing was measured."""


class Chart(NamedTuple):
    """A line chart. Lengths are pixels."""

    title: str
    unit: str
    lines: list[str]
    """Points of polylines, as SVG writes them; the line is interrupted where nothing was measured."""
    dots: list[tuple[float, float]]
    """Values without neighbours, of which no line could be drawn."""
    top: str
    """The number at the upper end of the axis."""
    last: str
    """The last value, with its unit."""
    text: str
    """What the chart says, for whoever cannot see it."""


def line(title: str, unit: str, points: Sequence[Point], top: float | None = None) -> Chart | None:
    """Return the chart of *points*, which are in the order of their times; None if there is no value.

    *top* is the upper end of the axis; by default a round number that no value exceeds.
    """
    values = [value for _, value in points if value is not None]
    if not values:
        return None
    top = top or ceiling(max(values))
    lines, dots = [], []
    for run in _runs(_placed(points, top)):
        if len(run) == 1:
            dots.append(run[0])
        else:
            lines.append(" ".join(f"{x},{y}" for x, y in run))
    last = _number(values[-1])
    return Chart(
        title=title,
        unit=unit,
        lines=lines,
        dots=dots,
        top=_number(top),
        last=f"{last} {unit}".rstrip(),
        text=f"{title}: {last} {unit} now, from {_number(min(values))} to {_number(max(values))} {unit}",
    )


def _placed(points: Sequence[Point], top: float) -> Iterable[tuple[float, float] | None]:
    first, last = points[0][0], points[-1][0]
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    for at, value in points:
        if value is None:
            yield None
            continue
        part = (at - first) / (last - first) if last > first else 1.0
        height = min(max(value / top, 0.0), 1.0)
        yield round(LEFT + part * across, 1), round(TOP + (1 - height) * down, 1)


def _runs(places: Iterable[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    """Return the places as runs without a gap."""
    runs: list[list[tuple[float, float]]] = [[]]
    for place in places:
        if place is not None:
            runs[-1].append(place)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
