# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG markup. Colours are CSS classes, which the page defines for light and for dark backgrounds.

Every chart is a `<figure>` with its title as caption. Axes begin at the smallest number, the vertical one at most at 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

WIDTH, HEIGHT = 880, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 34
COLOURS = 12
"""The number of colour classes: c0 to c11."""
SHADES = 4
"""The number of classes of shades of a colour: s0 to s3."""

Points = Sequence[tuple[float, float]]
"""(x, y) pairs, sorted by x."""


def lines(
    title: str,
    series: Sequence[tuple[str, Points]],
    *,
    x: str,
    y: str,
    steps: bool = False,
    time: bool = False,
) -> str:
    """Return a line chart of several *series*, each a name and its points; *x* and *y* are the labels of the axes.

    With *steps* a value is drawn as constant until the next point. With *time* x is in seconds, and is shown in a
    suitable unit.
    """
    kept = [(name, thinned(points)) for name, points in series]
    xs = [point[0] for _, points in kept for point in points] or [0.0]
    ys = [point[1] for _, points in kept for point in points] or [0.0]
    frame = _Frame(min(xs), max(xs), min(0.0, *ys), max(ys), time)
    body = [frame.axes(x, y)]
    for number, (name, points) in enumerate(kept):
        path = _path([(frame.x(px), frame.y(py)) for px, py in points], steps)
        body.append(
            f'<path class="line c{number % COLOURS}" d="{path}"><title>{escape(name)}</title></path>'
        )
    return _figure(title, body, [name for name, _ in kept])


def histogram(
    title: str,
    series: Sequence[tuple[str, Sequence[float]]],
    *,
    x: str,
    bins: int = 40,
    first: int = 0,
) -> str:
    """Return a histogram of several *series* of values: the percentage that falls into each of *bins* equal ranges.

    *first* is the colour of the first one; each further one has the next.
    """
    values = [value for _, found in series for value in found] or [0.0]
    low, high = min(values), max(values)
    width = (high - low) / bins or 1.0
    shares = []
    for name, found in series:
        counts = [0] * bins
        for value in found:
            counts[min(int((value - low) / width), bins - 1)] += 1
        shares.append((name, [100 * count / (len(found) or 1) for count in counts]))
    highest = max((share for _, found in shares for share in found), default=1.0)
    frame = _Frame(low, low + width * bins, 0.0, highest or 1.0)
    body = [frame.axes(x, "% of the requests")]
    for number, (name, found) in enumerate(shares, first):
        for place, share in enumerate(found):
            if not share:
                continue
            slot = (frame.x(low + width) - frame.x(low)) / len(shares)
            left = frame.x(low + place * width) + (number - first) * slot
            top = frame.y(share)
            body.append(
                f'<rect class="bar c{number % COLOURS}" x="{left:.1f}" y="{top:.1f}" '
                f'width="{max(slot - 0.5, 0.5):.1f}" height="{frame.y(0) - top:.1f}">'
                f"<title>{escape(name)}: {share:.1f} %</title></rect>"
            )
    return _figure(title, body, [name for name, _ in shares], first=first)


def bars(title: str, values: Sequence[tuple[str, float]], *, unit: str) -> str:
    """Return a chart with a horizontal bar for each (name, value)."""
    highest = max((value for _, value in values), default=0.0) or 1.0
    row, names = 24, 220
    body = []
    for number, (name, value) in enumerate(values):
        top = TOP + number * row
        width = max(value, 0.0) / highest * (WIDTH - names - 110)
        body.append(
            f'<text class="name" x="{names - 8}" y="{top + 13}">{escape(name)}</text>'
            f'<rect class="bar c{number % COLOURS}" x="{names}" y="{top}" width="{width:.1f}" height="17"/>'
            f'<text class="value" x="{names + width + 6:.1f}" y="{top + 13}">{_short(value)} {escape(unit)}</text>'
        )
    return _figure(title, body, height=TOP + row * len(values) + 8)


def occupancy(
    title: str,
    rows: Sequence[str],
    blocks: Iterable[tuple[int, float, float, float, int, str]],
    *,
    groups: Sequence[int] = (),
    span: tuple[float, float] | None = None,
    shades_of: int | None = None,
) -> str:
    """Return a chart of which rows, usually GPUs, were occupied when.

    Each of *blocks* is (row, begin in seconds, end in seconds, share of the row from 0 to 1, colour, label). *rows* are
    the names of the rows; only those of *groups*, the first row of each host, are shown. *span* is where the time
    begins and ends, by default with the blocks. With *shades_of*, which is a colour, all blocks have shades of that.
    """
    blocks = list(blocks)
    begin, end = span or (
        min((block[1] for block in blocks), default=0.0),
        max((block[2] for block in blocks), default=1.0),
    )
    height = max(5.0, min(28.0, 640 / (len(rows) or 1)))
    frame = _Frame(begin, end, 0.0, 1.0, time=True, height=TOP + BOTTOM + height * len(rows))
    body = [frame.time_axis()]
    for row in groups:
        top = TOP + row * height
        body.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{top:.1f}" y2="{top:.1f}"/>'
        )
        body.append(
            f'<text class="tick end" x="{LEFT - 6}" y="{top + 9:.1f}">{escape(rows[row])}</text>'
        )
    stacks: dict[int, list[tuple[float, float]]] = {}
    for row, since, until, share, colour, label in sorted(blocks, key=lambda block: block[1]):
        # A block is drawn on top of those that occupy other shares of the row at its beginning.
        stack = [
            (end_of_other, other)
            for end_of_other, other in stacks.get(row, ())
            if end_of_other > since
        ]
        under = sum(other for _, other in stack)
        stacks[row] = [*stack, (until, share)]
        top = TOP + row * height + (1 - min(under + share, 1.0)) * (height - 1)
        left, right = frame.x(since), frame.x(until)
        look = f"c{(colour if shades_of is None else shades_of) % COLOURS}"
        if shades_of is not None:
            look += f" s{colour % SHADES}"
        body.append(
            f'<rect class="block {look}" x="{left:.1f}" y="{top:.1f}" '
            f'width="{max(right - left, 0.4):.1f}" height="{share * (height - 1):.1f}">'
            f"<title>{escape(label)}</title></rect>"
        )
    return _figure(title, body, height=frame.height)


def thinned(points: Points, most: int = 1200) -> list[tuple[float, float]]:
    """Return about *most* of the points, for the same look: of each stretch the first, the lowest and the highest."""
    if len(points) <= most:
        return list(points)
    stretch = math.ceil(len(points) * 3 / most)
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        low, high = min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])
        kept += sorted({part[0], low, high})
    kept.append(points[-1])
    return kept


class _Frame:
    """The area of a chart: converts numbers to coordinates in pixels, and draws the axes."""

    def __init__(
        self,
        low: float,
        high: float,
        bottom: float,
        top: float,
        time: bool = False,
        height: float = HEIGHT,
    ) -> None:
        self.low, self.high = low, high if high > low else low + 1
        self.bottom, self.top = bottom, top if top > bottom else bottom + 1
        self.height = height
        self._unit, self._unit_name = _unit(self.high - self.low) if time else (1.0, "")

    def x(self, value: float) -> float:
        """Return the horizontal coordinate of *value*."""
        return LEFT + (value - self.low) / (self.high - self.low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the vertical coordinate of *value*; in SVG it grows downwards."""
        share = (value - self.bottom) / (self.top - self.bottom)
        return self.height - BOTTOM - share * (self.height - TOP - BOTTOM)

    def axes(self, x: str, y: str) -> str:
        """Return the markup of both axes, labelled *x* and *y*."""
        ticks = []
        for value in _ticks(self.bottom, self.top):
            at = self.y(value)
            ticks.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
                f'<text class="tick end" x="{LEFT - 6}" y="{at + 4:.1f}">{_short(value)}</text>'
            )
        ticks.append(f'<text class="label" x="{LEFT}" y="{TOP - 2}">{escape(y)}</text>')
        return "".join(ticks) + self.time_axis(x)

    def time_axis(self, name: str = "") -> str:
        """Return the markup of the horizontal axis, labelled *name* and, if it is a time, its unit."""
        foot = self.height - BOTTOM
        ticks = []
        for value in _ticks(self.low / self._unit, self.high / self._unit, 8):
            at = self.x(value * self._unit)
            ticks.append(
                f'<text class="tick middle" x="{at:.1f}" y="{foot + 15:.1f}">{_short(value)}</text>'
            )
        label = " ".join(
            part for part in (name, self._unit_name and f"({self._unit_name})") if part
        )
        ticks.append(
            f'<text class="label end" x="{WIDTH - RIGHT}" y="{self.height - 4:.1f}">{escape(label)}</text>'
        )
        return "".join(ticks)


def _figure(
    title: str,
    body: Sequence[str],
    legend: Sequence[str] = (),
    height: float = HEIGHT,
    first: int = 0,
) -> str:
    keys = "".join(
        f'<span class="key"><i class="c{number % COLOURS}"></i>{escape(name)}</span>'
        for number, name in enumerate(legend, first)
        if first or len(legend) > 1
    )
    return (
        f"<figure><figcaption>{escape(title)}{keys}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"{''.join(body)}</svg></figure>"
    )


def _path(points: Points, steps: bool) -> str:
    if not points:
        return ""
    (x, y), *following = points
    parts = [f"M{x:.1f},{y:.1f}"]
    for x, y in following:
        parts.append(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f},{y:.1f}")
    return "".join(parts)


def _ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return about *most* round numbers between *low* and *high*: multiples of 1, 2 or 5 times a power of ten."""
    span = high - low or 1.0
    rough = span / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step) + 1)]


def _unit(seconds: float) -> tuple[float, str]:
    """Return the unit of time for a span: its length in seconds, and its name."""
    for length, name in ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 3 * length:
            return length, name
    return 1.0, "seconds"


def _short(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
