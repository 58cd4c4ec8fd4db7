# SPDX-License-Identifier: Apache-2.0
"""Retrying transactions that lost a race against others, with a growing random pause."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from oslo_db import exception as db_exception

from gsaas import exceptions
from gsaas.db.database import OvertakenError

Written = TypeVar("Written")

LONGEST_PAUSE = 0.1
"""Seconds."""

SERIALIZATION_FAILURE = "40001"
"""The SQL standard's SQLSTATE for a transaction that cannot be serialized with others."""

JITTER = random.SystemRandom()


_LOST = (OvertakenError, db_exception.DBError)
"""Errors that may mean only that another transaction was faster."""


def retry(attempts: int, write: Callable[[int], Written]) -> Written:
    """Return what *write* returns, tried up to *attempts* times while other transactions are faster.

    *write* is called with the number of attempts before, which were overtaken. Raises `ClaimConflict` when other
    transactions were faster each time; any other error of *write* is raised at once.
    """
    for attempt in range(attempts):
        try:
            return write(attempt)
        except (*_LOST, exceptions.GsaasError) as error:
            _raise_unless_overtaken(error)
        _pause(attempt)
    raise exceptions.ClaimConflict(attempts=attempts)


def _raise_unless_overtaken(error: Exception) -> None:
    """Raise *error* again, unless it means only that another transaction was faster or has the lock."""
    cause = getattr(error, "inner_exception", None)
    if not (
        isinstance(error, OvertakenError | db_exception.DBDeadlock)
        or (isinstance(error, db_exception.DBDuplicateEntry) and _is_shared(error))
        or getattr(getattr(cause, "orig", None), "sqlstate", None) == SERIALIZATION_FAILURE
        or "database is locked" in str(cause)
    ):
        raise error


def _is_shared(error: db_exception.DBDuplicateEntry) -> bool:
    """Return whether two transactions chose the same port for a daemon, or the same masked address of a host."""
    # oslo.db cuts the last word of the constraint's name off PostgreSQL's message, so the original one is searched.
    message = str(getattr(error.inner_exception, "orig", None) or error.columns)
    return any(name in message for name in ("daemon", "masked"))


def _pause(attempt: int) -> None:
    """Wait for a random time, longer with each attempt, so that competitors do not meet again."""
    time.sleep(JITTER.uniform(0, min(0.001 * 2**attempt, LONGEST_PAUSE)))
