# SPDX-License-Identifier: Apache-2.0
"""A cache of limits, for callers that read them often and can use values that are a few seconds old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gsaas import exceptions
from gsaas.limits.base import NOTHING, Amounts, Limits

MAX_AGE = 10.0
"""Seconds for which a value is used."""


class CachedLimits(Limits):
    """Caches *limits* for `MAX_AGE` seconds. While Keystone does not answer, all limits are 0."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._cache: dict[str, tuple[float, Amounts]] = {}

    def of(self, project_id: str) -> Amounts:
        now = self._clock()
        with self._lock:
            until, amounts = self._cache.get(project_id, (now, NOTHING))
        if now < until:
            return amounts
        # Read without the lock, so that a slow Keystone does not delay projects whose limits are cached.
        try:
            amounts = self._limits.of(project_id)
        except exceptions.IdentityUnavailable:
            amounts = NOTHING
        with self._lock:
            # Expired values are dropped here, or the cache would grow with every project there ever was.
            self._cache = {key: value for key, value in self._cache.items() if now < value[0]}
            self._cache[project_id] = (now + MAX_AGE, amounts)
        return amounts
