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


class Event:
    """One event to come. Once cancelled it never runs, and the clock does not stop at its time."""

    __slots__ = ("_call",)

    def __init__(self, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._call: tuple[Callable[..., None], tuple[Any, ...]] | None = (callback, args)

    def cancel(self) -> None:
        """Never run the event; one that has run or is cancelled stays as it is."""
        self._call = None

    def run(self) -> None:
        """Run the event, once."""
        if self._call is not None:
            (callback, args), self._call = self._call, None
            callback(*args)

    @property
    def is_cancelled(self) -> bool:
        """Whether it will not run any more."""
        return self._call is None


class Clock:
    """Simulated time in seconds since the beginning, and the events that are still to come.

    *now* is the time of the last event that ran: when all have run, the end of the last job or lease.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        """How many events have run so far."""
        # The serial number decides between equal times and priorities, before Python would compare the events.
        self._heap: list[tuple[float, int, int, Event]] = []
        self._serial = itertools.count()

    def schedule(
        self, time: float, callback: Callable[..., None], *args: Any, priority: int = 0
    ) -> Event:
        """Call *callback* with *args* at *time*, unless the event that is returned is cancelled before.

        At equal times the smaller *priority* runs first. Raises `ValueError` if *time* is in the past.
        """
        if time < self.now:
            raise ValueError(f"{time} is before {self.now}")
        event = Event(callback, args)
        heapq.heappush(self._heap, (time, priority, next(self._serial), event))
        return event

    def run(self, check: Callable[[], None] | None = None) -> None:
        """Run all events, including those that events schedule; call *check* after each of them."""
        while self._heap:
            time, _, _, event = heapq.heappop(self._heap)
            if event.is_cancelled:
                continue
            self.now = time
            self.events += 1
            event.run()
            if check is not None:
                check()
