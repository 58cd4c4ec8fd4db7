# SPDX-License-Identifier: Apache-2.0
"""Subscriptions of requests that stay open until a lease changes (long polls), each in a thread of its own."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class LeaseSubscription(threading.Event):
    """An event that is set whenever the lease changes; the subscriber clears it."""

    is_attended = False
    """True if the subscriber is the client that asked for the lease with `attended`, not another reader of it."""


class LeaseSubscriptions:
    """The open requests of this process, by the lease they wait for. Safe to share between threads.

    At most *limit* requests wait at a time, so that threads are left for other requests. *on_subscribe* is called
    before each subscription; in a deployment of several processes it starts the listener that receives changes that
    other processes announce.
    """

    def __init__(self, limit: int, on_subscribe: Callable[[], None] = lambda: None) -> None:
        self._limit = limit
        self.on_subscribe = on_subscribe
        self._lock = threading.Lock()
        self._by_lease: dict[str, list[LeaseSubscription]] = defaultdict(list)
        self._count = 0

    @contextmanager
    def subscribe(self, lease_id: str) -> Iterator[LeaseSubscription | None]:
        """Yield a subscription to the lease's changes; None if *limit* requests wait already."""
        self.on_subscribe()
        subscription = self._add(lease_id)
        if subscription is None:
            yield None
            return
        try:
            yield subscription
        finally:
            self._remove(lease_id, subscription)

    def has_subscribers(self, lease_id: str) -> bool:
        """Return whether a request of this process waits for the lease."""
        with self._lock:
            return lease_id in self._by_lease

    def is_client_waiting(self, lease_id: str) -> bool:
        """Return whether the lease's own client waits for it in this process."""
        with self._lock:
            return any(each.is_attended for each in self._by_lease.get(lease_id, ()))

    def notify(self, lease_id: str) -> bool:
        """Wake the requests of this process that wait for the lease; return whether there are any."""
        with self._lock:
            subscriptions = list(self._by_lease.get(lease_id, ()))
        for subscription in subscriptions:
            subscription.set()
        return bool(subscriptions)

    def leases(self) -> list[str]:
        """Return the leases that requests of this process wait for. Takes no lock, for reports."""
        return sorted(self._by_lease.copy())

    def _add(self, lease_id: str) -> LeaseSubscription | None:
        with self._lock:
            if self._count >= self._limit:
                return None
            subscription = LeaseSubscription()
            self._count += 1
            self._by_lease[lease_id].append(subscription)
            return subscription

    def _remove(self, lease_id: str, subscription: LeaseSubscription) -> None:
        with self._lock:
            self._count -= 1
            self._by_lease[lease_id].remove(subscription)
            if not self._by_lease[lease_id]:
                del self._by_lease[lease_id]
