# SPDX-License-Identifier: Apache-2.0
"""Estimates of how long a request in the queue still waits."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Mapping

from gsaas.db import queue
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.queue import estimate

MAX_AGE = 1.0
"""Seconds for which the history is used before it is read again."""
ENDS_MAX_AGE = 5.0
"""Seconds for which it is used when leases end: claims wait while that is computed."""
MOST = 128
"""Requests and shares of GPUs that are looked at for that."""


class QueueEstimates:
    """Estimates waiting times: how long recent leases kept their GPUs, or when leases end, whichever is sooner.

    The database is read at most once per `MAX_AGE`. Safe to share between threads.
    """

    def __init__(self, database: Database, claims: Claims) -> None:
        self._database = database
        self._claims = claims
        self._lock = threading.Lock()
        self._read_at = -MAX_AGE
        self._history: tuple[int, list[float]] = 0, []
        self._ends_read_at = -ENDS_MAX_AGE
        self._expected: Mapping[str, datetime.datetime] = {}

    def seconds(self, position: int, lease_id: str | None = None) -> float | None:
        """Return the seconds until a lease at *position* (from 1) gets GPUs; None if nothing says when.

        Without *lease_id* it is about a request that is not in the queue: of it, only recent leases say something.
        """
        with self._lock:
            now = time.monotonic()
            if now - self._read_at >= MAX_AGE:
                with self._database.reading() as connection:
                    self._history = queue.durations(connection)
                self._read_at = now
            if lease_id is not None and now - self._ends_read_at >= ENDS_MAX_AGE:
                self._expected = self._claims.expected_in_queue(MOST)
                self._ends_read_at = now
            by_history = estimate(position, *self._history)
            at = None if lease_id is None else self._expected.get(lease_id)
        if at is None:
            return by_history
        by_ends = max(0.0, (at - self._database.now()).total_seconds())
        return by_ends if by_history is None else min(by_history, by_ends)
