# SPDX-License-Identifier: Apache-2.0
"""When requests with the same token arrive at once, one asks Keystone; the others find its answer in the cache.

keystonemiddleware asks Keystone for each request whose token it has not cached. When a client starts 64 programs, each
of which has the token that the first one has stored, that would be 64 questions for each process of the API.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from gsaas import exceptions

T = TypeVar("T")


class _Validation:
    """A validation that is under way."""

    __slots__ = ("answered", "running")

    def __init__(self) -> None:
        self.answered = True
        """Whether Keystone has answered; it is known once *running* can be acquired."""
        self.running = threading.Lock()
        self.running.acquire()


class Validations:
    """The validations that are under way, by token. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, _Validation] = {}

    def run(self, token: str, validate: Callable[[], T]) -> T:
        """Return what *validate* returns; call it once no other thread does so for the same token.

        If that one found Keystone away, raises `IdentityUnavailable` as it did: otherwise threads would wait for
        Keystone one after the other.
        """
        own = _Validation()
        with self._lock:
            other = self._running.setdefault(token, own)
        if other is not own:
            with other.running:  # once it has ended
                pass
            if not other.answered:
                raise exceptions.IdentityUnavailable
            return validate()
        try:
            return validate()
        except exceptions.IdentityUnavailable:
            own.answered = False
            raise
        finally:
            with self._lock:
                del self._running[token]
            own.running.release()
