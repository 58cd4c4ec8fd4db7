# SPDX-License-Identifier: Apache-2.0
"""How many leases each project has in the database, released ones included, and the bound on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gsaas import exceptions
from gsaas.db import leases
from gsaas.db.database import Database

MAX_AGE = 60.0
"""Seconds for which a count is used before the rows are counted again: that may take a tenth of a second."""


class StoredLeases:
    """Refuses launches of projects with more leases than *most*; -1 means no limit. Safe to share between threads.

    Between two counts it adds the launches of this process, and knows nothing of those of other processes.
    """

    def __init__(
        self, database: Database, most: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[str, tuple[float, int]] = {}
        """Project -> when its count expires, and the count."""

    def add(self, project_id: str) -> None:
        """Count one more lease of a project; raise `TooManyLeases` if it may not have another."""
        if self._most < 0:
            return
        now = self._clock()
        with self._lock:
            expires, count = self._counts.get(project_id, (now, 0))
        if expires <= now:
            with self._database.reading() as connection:
                expires, count = now + MAX_AGE, leases.stored(connection, project_id)
        refused = count >= self._most
        with self._lock:
            if len(self._counts) >= 1000:  # or it would grow with every project there ever was
                self._counts = {key: value for key, value in self._counts.items() if now < value[0]}
            # What is refused is stored, too, or each further attempt would count the rows again.
            self._counts[project_id] = expires, count if refused else count + 1
        if refused:
            raise exceptions.TooManyLeases(limit=self._most)
