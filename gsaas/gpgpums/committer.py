# SPDX-License-Identifier: Apache-2.0
"""Commits the changes of threads: together with those of others, and again while other transactions are faster."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from oslo_db import exception as db_exception

from gsaas import exceptions
from gsaas.db.database import OvertakenError
from gsaas.gpgpums.batches import MOST, Batches
from gsaas.gpgpums.changes import Change, Claim, Entry, Return, Terminate
from gsaas.gpgpums.ledger import Ledger, LeftOutError, Outcome
from gsaas.metrics import counted

LOG = logging.getLogger(__name__)

Written = TypeVar("Written")

TOGETHER = 3
"""Attempts at a change that batches leave out, before it is committed alone. A row is mostly locked by a transaction
that is soon over."""

LONGEST_PAUSE = 0.1
"""Seconds."""

SERIALIZATION_FAILURE = "40001"
"""The SQL standard's SQLSTATE for a transaction that cannot be serialized with others."""

JITTER = random.SystemRandom()


_LOST = (OvertakenError, db_exception.DBError)
"""Errors that may mean only that another transaction was faster."""


class Committer:
    """Commits changes by *ledger*, each tried up to *attempts* times; safe to share between threads."""

    def __init__(self, ledger: Ledger, attempts: int) -> None:
        self.ledger = ledger
        self.attempts = attempts
        self._batches = Batches[Change, Entry](
            ledger.commit, most=MOST if ledger.can_leave_out else 1
        )

    def commit(self, change: Change) -> Entry:
        """Return the entry of *change*, whose effects the caller carries out; raise why there is none.

        Raises `ClaimConflict` if other transactions were faster each time.
        """
        together = _may_be_left_out(change)
        # Of two attempts or more, the last one is made alone.
        last_together = min(TOGETHER, self.attempts - 1)

        def write(attempt: int) -> Entry:
            nonlocal together
            if isinstance(change, Claim):
                counted.claim_attempt()
            if not together:
                return self._commit_alone(change, patiently=attempt > 0)
            together = False
            try:
                return self._batches.commit(change)
            except LeftOutError:
                together = attempt + 1 < last_together
                raise

        return retry(self.attempts, write)

    def _commit_alone(self, change: Change, *, patiently: bool) -> Entry:
        [outcome] = self.ledger.commit([change], patiently=patiently)
        return _raised(outcome)


def _may_be_left_out(change: Change) -> bool:
    """Return whether a batch can leave out *change*, so that it keeps no other change waiting."""
    if isinstance(change, Claim):
        return change.lease.reservation_id is None
    return isinstance(change, Return | Terminate)


def _raised(outcome: Outcome) -> Entry:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def end_each(ids: Iterable[str], end: Callable[[str], bool]) -> list[str]:
    """Call *end* for each lease or reservation, and return those for which it returns True.

    For audits: an error of one is logged and does not keep the others from their end. The next audit tries again.
    Raises only `oslo_db.exception.DBConnectionError`, after which the others would fail as well.
    """
    ended = []
    for one in ids:
        try:
            if end(one):
                ended.append(one)
        except db_exception.DBConnectionError:
            raise
        except Exception:
            LOG.exception("%s stays as it is until the next audit", one)
    return ended


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
