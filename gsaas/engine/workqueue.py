# SPDX-License-Identifier: Apache-2.0
"""A queue of keys to be processed now or later, each by one worker at a time.

It is the work queue of Kubernetes' controllers:

1. A key that is added twice before it is processed is processed once.
2. A key that is added while a worker processes it is processed again after that: what the worker observed may be old.
3. A key added with a delay is processed when that is over, or when it is added without one.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable


class WorkQueue:
    """Keys in the order in which they are due. Safe to share between threads; *clock* returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        self._processing: set[str] = set()
        self._serial = itertools.count()
        self._closed = False

    def add(self, key: str, after: float = 0.0) -> None:
        """Have *key* processed in *after* seconds, or sooner if an earlier call requested that."""
        with self._changed:
            due = self._clock() + after
            if due >= self._due.get(key, float("inf")):
                return
            self._due[key] = due
            heapq.heappush(self._heap, (due, next(self._serial), key))
            self._changed.notify()

    def get(self) -> str | None:
        """Wait for a key that is due and return it; None once the queue is closed. `done` must follow."""
        with self._changed:
            while not self._closed:
                seconds = self._seconds_until_due()
                if seconds is None or seconds > 0:
                    self._changed.wait(seconds)
                    continue
                key = heapq.heappop(self._heap)[2]
                del self._due[key]
                self._processing.add(key)
                return key
            return None

    def done(self, key: str) -> None:
        """End the processing of *key*; if it was added meanwhile, it may be processed again."""
        with self._changed:
            self._processing.discard(key)
            if key in self._due:
                heapq.heappush(self._heap, (self._due[key], next(self._serial), key))
                self._changed.notify()

    def describe(self) -> tuple[list[str], dict[str, float]]:
        """Return the keys that are being processed, and the others with the seconds until each is due.

        Takes no lock, so that it returns whatever other threads do; the two may be a moment apart.
        """
        now = self._clock()
        waiting = {key: round(max(0.0, due - now), 1) for key, due in self._due.copy().items()}
        return sorted(self._processing.copy()), waiting

    def close(self) -> None:
        """End the queue: every `get`, waiting ones included, returns None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _seconds_until_due(self) -> float | None:
        """Drop obsolete entries from the heap; return the seconds until its first key is due, None without one."""
        while self._heap:
            due, _, key = self._heap[0]
            superseded = self._due.get(key) != due
            if superseded or key in self._processing:
                heapq.heappop(self._heap)  # `done` puts back a key that is being processed
                continue
            return due - self._clock()
        return None
