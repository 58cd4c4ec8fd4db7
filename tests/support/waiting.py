# SPDX-License-Identifier: Apache-2.0
"""Waiting for what happens elsewhere: looking often, giving up late."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T], what: str | Callable[[], str] = "it", patience: float = 60.0) -> T:
    """Return what *look* returns as soon as that is true; fail after *patience* seconds.

    *what* is waited for; a function is asked once it did not come.
    """
    deadline = time.monotonic() + patience
    while not (seen := look()):
        if time.monotonic() >= deadline:
            name = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {patience:g} s for {name}; last seen: {seen}")
        time.sleep(0.02)
    return seen
