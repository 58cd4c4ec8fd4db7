# SPDX-License-Identifier: Apache-2.0
"""The phases of a launch as a picture: one bar for each phase, one below the other, along one axis of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gsaas_dashboard.presentation.quantities import seconds

LABELS = {
    "gpu_selection": "GPU selection",
    "check": "check by the cloud",
    "queue": "wait in the queue",
    "claim": "claim",
    "creation": "creation of the VM",
    "activation": "boot until Nova says active",
    "deployment": "until the lease is active",
    "rodvr_configuration": "connection to the GPUs",
}
"""Phases in the order in which they begin -> what they are called."""
MEANWHILE = "rodvr_configuration"
"""Takes place while the VM boots: it begins with the activation."""
BEGINS_WITH = "activation"

ROW, BAR, TEXT, RIGHT = 26, 14, 230, 90
"""Pixels: height of a row and of a bar, width of the labels before and of the durations after the bars."""
SHORTEST = 2.0
"""Pixels of a phase that is too short to be seen."""

SHORTEST_LAUNCH = 1e-6
"""Seconds that the axis has at least."""


class Bar(NamedTuple):
    """One phase. Lengths are pixels."""

    label: str
    duration: str
    x: float
    y: float
    width: float
    text_y: float
    duration_x: float


class Picture(NamedTuple):
    """The bars, the size of the picture in pixels, and the sentence that replaces it for whoever cannot see it."""

    bars: list[Bar]
    width: int
    height: int
    text: str


def picture(timings: Mapping[str, float] | None, width: int = 720) -> Picture | None:
    """Return the picture of the phases with their durations in seconds; None without a phase."""
    known = [(phase, timings[phase]) for phase in LABELS if timings and phase in timings]
    if not known:
        return None
    begins = _begins(known)
    whole = max(begins[phase] + length for phase, length in known)
    whole = max(whole, SHORTEST_LAUNCH)
    scale = (width - TEXT - RIGHT) / whole
    bars = []
    for row, (phase, length) in enumerate(known):
        x, wide = TEXT + begins[phase] * scale, max(length * scale, SHORTEST)
        bars.append(
            Bar(
                label=LABELS[phase],
                duration=seconds(length),
                x=round(x, 1),
                y=row * ROW + (ROW - BAR) / 2,
                width=round(wide, 1),
                text_y=row * ROW + ROW / 2,
                duration_x=round(x + wide + 6, 1),
            )
        )
    text = "; ".join(f"{bar.label}: {bar.duration}" for bar in bars)
    return Picture(bars, width, len(bars) * ROW, text)


def _begins(known: list[tuple[str, float]]) -> dict[str, float]:
    """Return the second in which each phase begins: at the end of the one before it."""
    begins: dict[str, float] = {}
    at = 0.0
    for phase, length in known:
        if phase == MEANWHILE:
            begins[phase] = begins.get(BEGINS_WITH, at)
            continue
        begins[phase] = at
        at += length
    return begins
