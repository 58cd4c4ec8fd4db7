"""The simulated clock: a heap of what happens when.

Two things at the same moment happen in the order of their priority, and then in the order in which they were set: a run
is the same wherever it runs.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class Clock:
    """Seconds since the beginning, and what is to be called when."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        """How many there were so far."""
        self._heap: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = itertools.count()

    def at(self, time: float, call: Callable[..., None], *args: Any, priority: int = 0) -> None:
        """Call *call* at *time*; the smaller *priority* comes first. `ValueError` if that is in the past."""
        if time < self.now:
            raise ValueError(f"{time} is before {self.now}")
        heapq.heappush(self._heap, (time, priority, next(self._serial), call, args))

    def run(self, check: Callable[[], None] | None = None) -> None:
        """Let time pass until nothing is left to happen; *check* is called after every event."""
        while self._heap:
            self.now, _, _, call, args = heapq.heappop(self._heap)
            self.events += 1
            call(*args)
            if check is not None:
                check()
