# SPDX-License-Identifier: Apache-2.0
"""Commits the changes of threads, and does what they call for: tells those who wait, and serves the queue.

1. A change is committed together with those of other threads, and again while other transactions are faster.
2. The queue is advanced after the commit of a change that may let one of its leases be served. Of two threads that do
   so at once, the later one sees what both have written, so no lease is missed. Where transactions write one after the
   other, a return need not advance a queue that it found empty: a lease that joins later sees what was returned.
3. Before a lease of the queue is served, reservations keep what is free of the shares that they wait for.
"""

from __future__ import annotations

import datetime
import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from oslo_db import exception as db_exception
from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.db import clock
from gsaas.db import queue as queue_rows
from gsaas.db import reservations as reservation_rows
from gsaas.db.database import Database, OvertakenError, UncommittedError
from gsaas.gpgpums.batches import MOST, Batches
from gsaas.gpgpums.changes import Change, Claim, Serve
from gsaas.gpgpums.entries import AdvanceQueue, Announce, Entry, LeftOutError, RowsNeededError
from gsaas.gpgpums.ledger import Ledger
from gsaas.gpgpums.reservation_changes import Keep
from gsaas.limits import base as limits
from gsaas.metrics import counted

LOG = logging.getLogger(__name__)

Written = TypeVar("Written")

TOGETHER = 3
"""Attempts at a change that batches leave out, before it is committed alone. A row is mostly locked by a transaction
that is soon over."""

LONGEST_PAUSE = 0.1
"""Seconds."""

JITTER = random.SystemRandom()


_LOST = (OvertakenError, LeftOutError, db_exception.DBError)
"""Errors that may mean only that another transaction was faster."""


Announcer = Callable[[str, str, str | None, Mapping[str, float] | None], None]
"""Lease id, its status now, the policy that chose its GPUs if it has any, and how long each phase took."""


@dataclass(frozen=True)
class Clients:
    """Those who wait for leases in the queue."""

    announce: Announcer = lambda *_: None
    """Called for each lease that has left the queue, after the commit."""
    is_waiting: Callable[[str], bool] = lambda _: False
    """Returns whether a request of the lease's own client waits for it in this process."""


class Committer:
    """Commits changes by *ledger*, each tried up to *attempts* times; safe to share between threads.

    Reservations keep their shares from *notice* before their beginning on.
    """

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        clients: Clients,
        attempts: int,
        notice: datetime.timedelta,
    ) -> None:
        self.ledger = ledger
        self.attempts = attempts
        self.notice = notice
        self._database = database
        self._clients = clients
        # Before the first connection, it is not known what the database server can do.
        self._batches = Batches[Change, Entry](
            ledger.commit,
            most=lambda: MOST if ledger.can_leave_out else 1,
            kind=lambda change: change.chooses,
        )
        self._advancing = threading.Lock()
        self._calls = itertools.count(1)
        self._last_call = self._covered = 0

    def commit(self, change: Change) -> Entry:
        """Commit *change*, and do what it calls for; return its entry, or raise why there is none.

        Raises `ClaimConflict` if other transactions were faster each time.
        """
        entry = self._commit(change)
        try:
            for effect in entry.effects:
                if isinstance(effect, Announce):
                    self._clients.announce(
                        effect.lease_id, effect.status, effect.policy, effect.timings
                    )
        finally:
            if AdvanceQueue() in entry.effects:
                self.advance_queue()
        return entry

    def advance_queue(self) -> None:
        """Serve the leases at the front of the queue for as long as the next one fits.

        To be called when something was committed that may let a lease be served. Errors are logged: the engine's next
        audit calls again. Of two calls at once, the later one sees what both callers have written, so no call is lost.
        """
        call = self._last_call = next(self._calls)
        with self._advancing:
            if self._covered >= call:  # another thread has served the queue since this call began
                return
            covers = self._last_call  # calls that began before the queue is read below
            try:
                while self._serve_next():
                    pass
            except Exception:
                LOG.exception("the queue stays as it is until the next audit")
            self._covered = covers

    def keep(self, reservation_id: str) -> bool:
        """Bring the status of a reservation up to date, move what it has lost, and keep what is free of its shares.

        Returns False if it is over. Raises `NotFound`, `ClaimConflict`.
        """
        entry = self.commit(Keep(reservation_id, self.notice)).reservation
        if entry is None:
            return False
        for share, to in entry.moves:
            before, after = share.gpu_uuid, to.gpu_uuid
            LOG.info("reservation %s moves from %s to %s", reservation_id, before, after)
        return True

    def _commit(self, change: Change) -> Entry:
        # The last attempt is made alone, and waits for its rows.
        together = change.may_be_left_out and self.attempts > 1
        last_together = min(TOGETHER, self.attempts - 1)

        def write(attempt: int) -> Entry:
            nonlocal together
            if isinstance(change, Claim):
                counted.claim_attempt()
            if not together:
                [outcome] = self.ledger.commit(
                    [change], patiently=attempt > 0 or self.attempts == 1
                )
                if isinstance(outcome, Exception):
                    raise outcome
                return outcome
            together = False
            try:
                return self._batches.commit(change)
            except LeftOutError:
                together = attempt + 1 < last_together
                raise

        return retry(self.attempts, write)

    def _serve_next(self) -> bool:
        """Serve the next lease; return False if none can be served."""
        client_timeout = self.ledger.rules.queue.client_timeout
        with self._database.reading(snapshot=False) as connection:
            if queue_rows.is_empty(connection):
                return False
        with self._database.reading() as connection:
            head = queue_rows.head(connection, client_timeout)
            waiting = reservation_rows.waiting(connection, clock.now(connection) + self.notice)
        end_each(waiting, self.keep)
        watch = timeutils.StopWatch()
        watch.start()
        serve = Serve(watch, self._clients.is_waiting)
        if head is not None:  # which is probably the next one
            is_limited = limits.limited(self.ledger.rules.quotas.of(head.project_id))
            project_id = head.project_id if is_limited else None
            serve = replace(serve, lease_id=head.id, project_id=project_id)
        while True:
            try:
                return self.commit(serve).lease is not None
            except RowsNeededError as needed:
                serve = replace(serve, lease_id=needed.lease_id, project_id=needed.project_id)


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

    *write* is called with the number of attempts before, which were overtaken. If the connection is lost before the
    commit, that is tried again once: another connection may be had. Raises `ClaimConflict` when other transactions were
    faster each time; any other error of *write* is raised at once.
    """
    has_lost_connection = False
    for attempt in range(attempts):
        try:
            return write(attempt)
        except UncommittedError:
            if has_lost_connection:
                raise
            has_lost_connection = True
        except (*_LOST, exceptions.GsaasError) as error:
            _raise_unless_overtaken(error)
        _pause(attempt)
    raise exceptions.ClaimConflict(attempts=attempts)


def _raise_unless_overtaken(error: Exception) -> None:
    """Raise *error* again, unless it means only that another transaction was faster or has the lock."""
    is_lost_race = isinstance(error, OvertakenError | LeftOutError | db_exception.DBDeadlock)
    is_taken = isinstance(error, db_exception.DBDuplicateEntry) and _is_shared(error)
    if not (is_lost_race or is_taken):
        raise error


def _is_shared(error: db_exception.DBDuplicateEntry) -> bool:
    """Return whether two transactions chose the same port for a daemon, or the same masked address of a host."""
    # oslo.db cuts the last word of the constraint's name off PostgreSQL's message, so the original one is searched.
    message = str(getattr(error.inner_exception, "orig", None) or error.columns)
    return any(name in message for name in ("daemon", "masked"))


def _pause(attempt: int) -> None:
    """Wait for a random time, longer with each attempt, so that competitors do not meet again."""
    time.sleep(JITTER.uniform(0, min(0.001 * 2**attempt, LONGEST_PAUSE)))
