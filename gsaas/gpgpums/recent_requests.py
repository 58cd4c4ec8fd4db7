# SPDX-License-Identifier: Apache-2.0
"""The most recent requests, counted by what one cGPU of each needs."""

from __future__ import annotations

from collections import Counter, deque

from gsaas.gpgpums.indexed_gpus import IndexedGpus, Mix
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.request import ANY, Request


class RecentRequests:
    """The last *limit* requests. Not thread-safe."""

    def __init__(self, limit: int) -> None:
        self._last: deque[tuple[Request, int]] = deque()
        self._limit = limit
        self._counts: Counter[Request] = Counter()

    def add(self, request: Request) -> None:
        """Count *request*, once for each cGPU, and drop the oldest request if there are more than the limit."""
        kind = request.with_(count=1, locality=ANY, hosts=ANY, host=None, consumer_host=None)
        self._last.append((kind, request.count))
        self._counts[kind] += request.count
        if len(self._last) > self._limit:
            oldest, count = self._last.popleft()
            self._counts[oldest] -= count
            if not self._counts[oldest]:
                del self._counts[oldest]

    def show(self, policy: Policy, pool: IndexedGpus) -> None:
        """Let *policy* see the mix in *pool*, if it is one that looks at it. To be called before each choice."""
        if policy.looks_at_mix:
            pool.mix = self.mix

    @property
    def mix(self) -> Mix:
        """Return requests for one cGPU, and how often each was made."""
        return tuple(self._counts.items())
