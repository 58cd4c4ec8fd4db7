# SPDX-License-Identifier: Apache-2.0
"""Estimates of how long a request in the queue still waits."""

from __future__ import annotations

import threading
import time

from gsaas.db import queue
from gsaas.db.database import Database
from gsaas.gpgpums.queue import estimate

MAX_AGE = 1.0
"""Seconds for which the history is used before it is read again."""


class QueueEstimates:
    """Estimates waiting times from how long recent leases kept their GPUs.

    The history is read from the database at most once per `MAX_AGE`. Safe to share between threads.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._read_at = -MAX_AGE
        self._history: tuple[int, list[float]] = 0, []

    def seconds(self, position: int) -> float | None:
        """Return the seconds until the request at *position* (from 1) gets GPUs; None without any history."""
        with self._lock:
            if time.monotonic() - self._read_at >= MAX_AGE:
                with self._database.reading() as connection:
                    self._history = queue.durations(connection)
                self._read_at = time.monotonic()
            return estimate(position, *self._history)
