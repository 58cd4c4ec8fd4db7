# SPDX-License-Identifier: Apache-2.0
"""The picture of what remote GPUs buy: allocation against the share of remote cGPUs, all of it and its best corner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 900, 430
LEFT, TOP, BOTTOM, GAP = 60, 60, 70, 70
PANEL = (WIDTH - 2 * LEFT - GAP) / 2
COLOURS = ("#1b7837", "#2166ac", "#b2182b")
"""Of the cost models, in their order."""
SHAPES = {"tied": "square", "best-fit": "triangle", "local-gradient": "circle"}
WHOLE = (0.0, 100.0, 25.0), (65.0, 100.0, 5.0)
CORNER = (0.0, 6.0, 1.0), (92.0, 97.0, 1.0)
"""Of a panel: the ends of its horizontal and of its vertical axis, and how far apart their numbers are, in percent."""
Axes = tuple[tuple[float, float, float], tuple[float, float, float]]


@dataclass(frozen=True)
class Mark:
    """One placement under one cost model: *remote* in percent of all cGPUs, *allocated* in percent of all GPUs."""

    remote: float
    allocated: float
    shape: str
    colour: str
    text: str


def svg(rows: Sequence[Mapping[str, Any]], tied: Sequence[Mapping[str, Any]]) -> str:
    """Return the picture as SVG.

    *rows* are the rows of one reading of a workload, as the recipe `openb_remote` returns them; *tied* those of
    schedulers that tie tasks to nodes, which have no remote GPUs.
    """
    daemons = list(dict.fromkeys(row["daemon"] for row in rows))
    colour_of = dict(zip(daemons, COLOURS, strict=False))
    marks = []
    for row in rows:
        shape, colour = SHAPES[row["placement"]], colour_of[row["daemon"]]
        price = "" if row["price"] is None else f", price {row['price']} %"
        text = (
            f"{row['placement']}{price}, {row['daemon']}: {row['at_130']:.2f} % allocated, "
            f"{row['remote_percent']:.0f} % remote, {row['slowdowns'][0]:.2f} times as slow"
        )
        marks.append(Mark(row["remote_percent"], row["at_130"], shape, colour, text))
    for row in tied:
        text = f"{row['placement']}, tied to nodes: {row['at_130']:.2f} % allocated"
        marks.append(Mark(0, row["at_130"], SHAPES["tied"], "#555", text))
    body = [
        *_panel(LEFT, "remote cGPUs, %", WHOLE, marks),
        *_panel(LEFT + PANEL + GAP, "remote cGPUs, %: the upper left corner", CORNER, marks),
        *_legend(colour_of),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _panel(left: float, title: str, axes: Axes, marks: Sequence[Mark]) -> list[str]:
    bottom = HEIGHT - BOTTOM
    (low, high, step), (lowest, highest, rise) = axes

    def x(remote: float) -> float:
        return left + PANEL * (remote - low) / (high - low)

    def y(allocated: float) -> float:
        return bottom - (bottom - TOP) * (allocated - lowest) / (highest - lowest)

    parts = [
        f'<path d="M{left} {TOP}V{bottom}H{left + PANEL}" fill="none" stroke="black"/>',
        f'<text x="{left + PANEL / 2:.0f}" y="{bottom + 36}" text-anchor="middle">{escape(title)}</text>',
        f'<text x="{left - 40}" y="{TOP - 12}">GPUs allocated, %</text>',
    ]
    parts += [
        f'<text x="{x(tick):.0f}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>'
        for tick in _ticks(low, high, step)
    ]
    parts += [
        f'<text x="{left - 6}" y="{y(tick) + 4:.0f}" text-anchor="end">{tick:g}</text>'
        for tick in _ticks(lowest, highest, rise)
    ]
    return parts + [
        _mark(x(mark.remote), y(mark.allocated), mark)
        for mark in marks
        if low <= mark.remote <= high and lowest <= mark.allocated <= highest
    ]


def _ticks(low: float, high: float, step: float) -> list[float]:
    return [low + number * step for number in range(round((high - low) / step) + 1)]


def _mark(x: float, y: float, mark: Mark) -> str:
    drawn = {
        "square": f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"',
        "triangle": f'<path d="M{x:.1f} {y - 5:.1f}l5 9h-10z"',
        "circle": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5"',
    }[mark.shape]
    tag = drawn[1:].split(" ", 1)[0]
    return f'{drawn} fill="{mark.colour}" fill-opacity="0.7"><title>{escape(mark.text)}</title></{tag}>'


def _legend(colour_of: Mapping[str, str]) -> list[str]:
    parts, x = [], float(LEFT)
    names = [
        *((name, "circle", colour) for name, colour in colour_of.items()),
        ("best-fit", "triangle", "#777"),
        ("local-gradient", "circle", "#777"),
        ("tied to nodes", "square", "#777"),
    ]
    for name, shape, colour in names:
        text = f"{name} for each daemon" if name in colour_of else name
        parts.append(_mark(x, 20, Mark(0, 0, shape, colour, text)))
        parts.append(f'<text x="{x + 9:.0f}" y="24">{escape(text)}</text>')
        x += 30 + 6.4 * len(text)
    return parts
