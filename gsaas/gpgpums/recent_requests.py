"""What is asked for lately: the last so many requests, counted by what one cGPU of theirs needs."""

from __future__ import annotations

from collections import Counter, deque

from gsaas.gpgpums.indexed_gpus import Mix
from gsaas.objects.request import ANY, Request


class RecentRequests:
    """Remembers the last *most* requests; not thread-safe."""

    def __init__(self, most: int) -> None:
        self._last: deque[tuple[Request, int]] = deque()
        self._most = most
        self._often: Counter[Request] = Counter()

    def add(self, request: Request) -> None:
        """Count *request*, each cGPU once, and forget the oldest one if there are too many."""
        kind = request.with_(count=1, locality=ANY, hosts=ANY, host=None, consumer_host=None)
        self._last.append((kind, request.count))
        self._often[kind] += request.count
        if len(self._last) > self._most:
            oldest, count = self._last.popleft()
            self._often[oldest] -= count
            if not self._often[oldest]:
                del self._often[oldest]

    @property
    def mix(self) -> Mix:
        return tuple(self._often.items())
