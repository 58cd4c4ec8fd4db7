# SPDX-License-Identifier: Apache-2.0
"""The simulated clock: a heap of events, ordered by time.

Events at the same time run in the order of their priority, and then in the order in which they were scheduled. The
order never depends on hashes or addresses, so a run is the same on any machine.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class Clock:
    """Simulated time in seconds since the beginning, and the events that are still to come."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        """How many events have run so far."""
        # The serial number decides between equal times and priorities, before Python would compare the functions.
        self._heap: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serial = itertools.count()

    def schedule(
        self, time: float, callback: Callable[..., None], *args: Any, priority: int = 0
    ) -> None:
        """Call *callback* with *args* at *time*; at equal times the smaller *priority* runs first.

        Raises `ValueError` if *time* is in the past.
        """
        if time < self.now:
            raise ValueError(f"{time} is before {self.now}")
        heapq.heappush(self._heap, (time, priority, next(self._serial), callback, args))

    def run(self, check: Callable[[], None] | None = None) -> None:
        """Run all events, including those that events schedule; call *check* after each of them."""
        while self._heap:
            self.now, _, _, callback, args = heapq.heappop(self._heap)
            self.events += 1
            callback(*args)
            if check is not None:
                check()
