"""Whose turn it is: keys that want attention, now or later, each handed to one worker at a time.

1. A key that is added twice before its turn has one turn.
2. A key that is added while a worker has it gets another turn after that one: what the worker saw may be old.
3. Keys added for later wait; adding one for now brings it forward.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable


class WorkQueue:
    """Keys in order of when they are due. Safe to share between threads; *clock* in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        self._held: set[str] = set()
        self._serial = itertools.count()
        self._closed = False

    def add(self, key: str, after: float = 0.0) -> None:
        """Ask for a turn of *key* in *after* seconds, or sooner if it was asked for already."""
        with self._changed:
            due = self._clock() + after
            if due >= self._due.get(key, float("inf")):
                return
            self._due[key] = due
            heapq.heappush(self._heap, (due, next(self._serial), key))
            self._changed.notify()

    def take(self) -> str | None:
        """Wait for a key whose turn has come; None once the list is closed. `done` must follow."""
        with self._changed:
            while not self._closed:
                pause = self._settle()
                if pause is None or pause > 0:
                    self._changed.wait(pause)
                    continue
                key = heapq.heappop(self._heap)[2]
                del self._due[key]
                self._held.add(key)
                return key
            return None

    def done(self, key: str) -> None:
        """The turn of *key* is over; if it was asked for meanwhile, its next one may begin."""
        with self._changed:
            self._held.discard(key)
            if key in self._due:
                heapq.heappush(self._heap, (self._due[key], next(self._serial), key))
                self._changed.notify()

    def close(self) -> None:
        """No more turns: everybody who waits is told."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _settle(self) -> float | None:
        """Drop what is not to be handed out; return seconds until the first key is due, None without one."""
        while self._heap:
            due, _, key = self._heap[0]
            superseded = self._due.get(key) != due
            if superseded or key in self._held:
                heapq.heappop(self._heap)  # a held key is put back by `done`
                continue
            return due - self._clock()
        return None
