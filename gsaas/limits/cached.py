"""Limits for whoever asks often and can live with an answer that is a few seconds old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gsaas import exceptions
from gsaas.limits.base import NOTHING, Amounts, Limits

KEPT = 10.0
"""Seconds."""


class CachedLimits(Limits):
    """What *limits* said lately. While Keystone does not answer, a project may have nothing more."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Amounts]] = {}

    def of(self, project_id: str) -> Amounts:
        now = self._clock()
        with self._lock:
            until, amounts = self._known.get(project_id, (now, NOTHING))
        if now < until:
            return amounts
        try:
            amounts = self._limits.of(project_id)
        except exceptions.IdentityUnavailable:
            amounts = NOTHING
        with self._lock:
            self._known = {key: value for key, value in self._known.items() if now < value[0]}
            self._known[project_id] = (now + KEPT, amounts)
        return amounts
