# SPDX-License-Identifier: Apache-2.0
"""The problems that an endpoint reports, and when it tries again what failed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

_OBSTACLE = "obstacle"


class Problems:
    """The problems of one endpoint, each under a key. Used with the endpoint's lock acquired.

    *retry_interval* is the pause in seconds before a failed operation is tried again; *wake* is called when
    that moment comes closer, so that the waiting thread can take note of it.
    """

    def __init__(self, retry_interval: float, wake: Callable[[], None]) -> None:
        self._retry_interval = retry_interval
        self._wake = wake
        self._texts: dict[str, str] = {}
        self.retry_at = 0.0
        """When to try again, as `time.monotonic` counts; infinity while there is nothing to try."""

    def __bool__(self) -> bool:
        return bool(self._texts)

    def add(self, key: str, text: str) -> None:
        """Report *text* until *key* is resolved, and schedule another try."""
        self._texts[key] = text
        self.retry_at = min(self.retry_at, time.monotonic() + self._retry_interval)
        self._wake()

    def resolve(self, key: str) -> None:
        """Stop reporting the problem of *key*; without such a problem, do nothing."""
        self._texts.pop(key, None)

    def clear(self) -> None:
        """Forget all problems, and that anything is to be tried again."""
        self._texts.clear()
        self.retry_at = math.inf

    def set_obstacles(self, texts: Iterable[str]) -> None:
        """Replace the obstacles: problems that only an operator can solve. They schedule no other try."""
        for key in [key for key in self._texts if key.startswith(_OBSTACLE)]:
            del self._texts[key]
        for number, text in enumerate(texts):
            self._texts[f"{_OBSTACLE} {number}"] = text

    @property
    def has_obstacles(self) -> bool:
        """Return whether there are problems that only an operator can solve."""
        return any(key.startswith(_OBSTACLE) for key in self._texts)

    def texts(self) -> tuple[str, ...]:
        """Return all problems and obstacles, in the order in which they were found."""
        return tuple(self._texts.values())
