"""Writing while others write: whoever loses a race tries again, a little later each time."""

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
"""The SQL standard's SQLSTATE for a transaction that others made impossible."""

JITTER = random.SystemRandom()


_LOST = (OvertakenError, db_exception.DBError)
"""What may only say that others were faster."""


def retry(
    attempts: int,
    write: Callable[[bool], Written],
    undo: Callable[[], None] = lambda: None,
) -> Written:
    """Return what *write* returns, tried up to so many times while others are faster.

    It is told whether it was overtaken before. *undo* is called after every attempt that failed, for whatever reason.
    Raises `ClaimConflict` when others were faster each time, and at once what says anything else.
    """
    for attempt in range(attempts):
        try:
            return write(attempt > 0)
        except (*_LOST, exceptions.GsaasError) as error:
            undo()
            _raise_unless_overtaken(error)
        _pause(attempt)
    raise exceptions.ClaimConflict(attempts=attempts)


def _raise_unless_overtaken(error: Exception) -> None:
    """Raise *error* again, unless it only says that others were faster or are in the way."""
    cause = getattr(error, "inner_exception", None)
    if not (
        isinstance(error, OvertakenError | db_exception.DBDeadlock)
        or (isinstance(error, db_exception.DBDuplicateEntry) and _is_shared(error))
        or getattr(getattr(cause, "orig", None), "sqlstate", None) == SERIALIZATION_FAILURE
        or "database is locked" in str(cause)
    ):
        raise error


def _is_shared(error: db_exception.DBDuplicateEntry) -> bool:
    """Whether two took the same port for a daemon, or the same masked address of a host."""
    # What oslo.db makes of PostgreSQL's message loses the constraint's last word.
    said = str(getattr(error.inner_exception, "orig", None) or error.columns)
    return any(name in said for name in ("daemon", "masked"))


def _pause(attempt: int) -> None:
    """Wait a little, longer each time, and never as long as the others do."""
    time.sleep(JITTER.uniform(0, min(0.001 * 2**attempt, LONGEST_PAUSE)))
