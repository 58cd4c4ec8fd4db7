"""How busy a GPU has been, from what was read of it every now and then. Values in, values out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Sample = tuple[float, float]
"""When it was read (seconds, of any clock that only goes forward), and percent."""


def mean(samples: Sequence[Sample], window: float) -> float | None:
    """Return the mean percentage over the *window* seconds before the last of *samples*, which are in order.

    A sample stands for the time since the one before, so that a change of the interval changes no
    mean. The first stands for no time, and counts only while it is alone. None without samples.
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
    return total / covered if covered else samples[-1][1]


def within(samples: Sequence[Sample], window: float) -> list[Sample]:
    """Return those of *samples* that `mean` still needs: the window's, and the one before it."""
    begin = samples[-1][0] - window if samples else 0.0
    older = sum(at < begin for at, _ in samples)
    return list(samples[max(0, older - 1) :])
