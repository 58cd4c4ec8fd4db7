# SPDX-License-Identifier: Apache-2.0
"""The mean utilisation of a GPU, from samples at irregular intervals. Pure: no I/O."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Sample = tuple[float, float]
"""The moment of a reading, in seconds of a monotonic clock, and the utilisation in percent."""


def mean(samples: Sequence[Sample], window: float) -> float | None:
    """Return the mean percentage over the *window* seconds before the last of *samples*; None without samples.

    *samples* are in the order of time. A sample has the weight of the time since the one before, so the interval
    between reports does not influence the mean. The first has no weight, and is the mean only while it is alone.
    """
    if not samples:
        return None
    begin = samples[-1][0] - window
    total = covered = 0.0
    for (before, _), (at, percent) in itertools.pairwise(samples):
        seconds = at - max(before, begin)
        if seconds > 0:
            total += percent * seconds
            covered += seconds
    # Of samples that are all 100, rounding may make more.
    return min(total / covered, 100.0) if covered else samples[-1][1]


def within(samples: Sequence[Sample], window: float) -> list[Sample]:
    """Return those of *samples* that `mean` still needs: those in the window, and the last one before it."""
    begin = samples[-1][0] - window if samples else 0.0
    older = sum(at < begin for at, _ in samples)
    return list(samples[max(0, older - 1) :])
