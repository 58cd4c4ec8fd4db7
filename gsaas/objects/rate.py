# SPDX-License-Identifier: Apache-2.0
"""Limits how many events each source may cause. Pure: the caller has the clock.

A source has a bucket of *per_source* tokens, which is full again after `PERIOD` seconds; each event takes one. All
sources together have one of *total* tokens, so that an attacker with many addresses cannot cause more than that either.
"""

from __future__ import annotations

from collections import OrderedDict

PERIOD = 60.0
"""Seconds in which an empty bucket becomes full."""
MAX_SOURCES = 10_000
"""Sources that are remembered; beyond that the one that was silent for longest is forgotten."""


class RateLimit:
    """Which events may pass. Not safe to share between threads without a lock."""

    def __init__(self, per_source: int, total: int) -> None:
        self._per_source, self._total = per_source, total
        self._sources: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._all = (float(total), 0.0)

    def allows(self, source: str, now: float) -> bool:
        """Return whether an event of *source* may pass at *now*, in seconds of a clock that only goes forward."""
        tokens = _refilled(
            self._sources.pop(source, (self._per_source, now)), self._per_source, now
        )
        total = _refilled(self._all, self._total, now)
        passes = tokens >= 1 and total >= 1
        # What is refused takes no token: otherwise a source that never pauses would never pass again.
        self._sources[source] = (tokens - passes, now)
        self._all = (total - passes, now)
        if len(self._sources) > MAX_SOURCES:
            self._sources.popitem(last=False)
        return passes


def _refilled(bucket: tuple[float, float], size: int, now: float) -> float:
    tokens, since = bucket
    return min(float(size), tokens + (now - since) * size / PERIOD)
