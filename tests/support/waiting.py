# SPDX-License-Identifier: Apache-2.0
"""Waiting for what happens elsewhere: looking often, giving up late."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 240.0
"""Seconds after which what a test waits for does not come any more, however busy the machine is."""
OFTEN, SELDOM = 0.02, 0.25
"""Seconds between two looks, at least and at most."""


def until(
    look: Callable[[], T], what: str | Callable[[], str] = "it", patience: float = PATIENCE
) -> T:
    """Return what *look* returns as soon as that is true; fail after *patience* seconds.

    *what* is waited for; a function is asked once it did not come. A look that takes long, because it starts a program
    or asks a server, is taken less often, so that it leaves the processors to what is waited for.
    """
    began = time.monotonic()
    deadline = began + patience
    while not (seen := look()):
        ended = time.monotonic()
        if ended >= deadline:
            name = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {patience:g} s for {name}; last seen: {seen}")
        time.sleep(min(max(OFTEN, 2 * (ended - began)), SELDOM))
        began = time.monotonic()
    return seen
