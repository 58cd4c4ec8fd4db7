# SPDX-License-Identifier: Apache-2.0
"""Launches that can be sent again: the API knows them by a key, and makes no second lease."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Answer = TypeVar("Answer")

HEADER = "Idempotency-Key"


def new_key() -> str:
    """Return an Idempotency-Key that no other request has."""
    return os.urandom(16).hex()


def send(request: Callable[[], Answer], lost: type[Exception]) -> Answer:
    """Return what *request* returns, which sends a request with a key. If it raises *lost*, it is called once more.

    *lost* is the exception for a connection that ended before the answer: the request may have taken effect.
    """
    try:
        return request()
    except lost:
        return request()
