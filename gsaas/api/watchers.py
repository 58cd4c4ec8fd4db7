"""Requests that are kept open until something happens to a lease, each in a thread of its own."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Bell(threading.Event):
    """Is set whenever the lease changes."""

    attends = False
    """It is the lease's own client that waits, and not somebody who only looks."""


class Watchers:
    """Who waits in this process for which lease. Safe to share between threads.

    No more than *most* wait at a time, so that threads are left for others. *listen* is called when
    somebody is about to wait: it sees to it that other processes are heard.
    """

    def __init__(self, most: int, listen: Callable[[], None] = lambda: None) -> None:
        self._most = most
        self.listen = listen
        self._lock = threading.Lock()
        self._bells: dict[str, list[Bell]] = defaultdict(list)
        self._waiting = 0

    @contextmanager
    def watching(self, lease_id: str) -> Iterator[Bell | None]:
        """What rings when the lease changes; None if too many wait already."""
        self.listen()
        with self._lock:
            full = self._waiting >= self._most
            if not full:
                bell = Bell()
                self._waiting += 1
                self._bells[lease_id].append(bell)
        if full:
            yield None
            return
        try:
            yield bell
        finally:
            with self._lock:
                self._waiting -= 1
                self._bells[lease_id].remove(bell)
                if not self._bells[lease_id]:
                    del self._bells[lease_id]

    def watched(self, lease_id: str) -> bool:
        """Does anybody wait here for this lease?"""
        with self._lock:
            return lease_id in self._bells

    def attended(self, lease_id: str) -> bool:
        """Does its own client wait here for this lease?"""
        with self._lock:
            return any(bell.attends for bell in self._bells.get(lease_id, ()))

    def ring(self, lease_id: str) -> bool:
        """Wake whoever waits here for this lease; return whether anybody did."""
        with self._lock:
            bells = list(self._bells.get(lease_id, ()))
        for bell in bells:
            bell.set()
        return bool(bells)
