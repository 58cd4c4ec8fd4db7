"""SQLite's journal on its way to the disk: one trip for all who wait for it.

SQLite's own way (`synchronous = FULL`) takes each commit to the disk while the next writer waits, and that may last
longer than the rest of a transaction. Under `NORMAL` it writes the journal and leaves the trip to us; what it needs
itself, for the file to be sound whatever happens, it still does (https://www.sqlite.org/pragma.html#pragma_synchronous).
"""

from __future__ import annotations

import logging
import os
import threading

from oslo_db import exception as db_exception

LOG = logging.getLogger(__name__)

LINGER = 0.1
"""Seconds after which a trip is made for what nobody waits for."""


class Journal:
    """The journal beside the file *database*."""

    def __init__(self, database: str) -> None:
        self._path = f"{database}-wal"
        self._state = threading.Condition()
        self._asked = self._settled = self._owed = 0
        self._under_way = self._pending = False
        self._failure: OSError | None = None

    def settle(self) -> None:
        """Return when all that was committed before is on the disk.

        Raises `oslo_db.exception.DBError` if the disk does not take it; from then on always, because nobody knows
        any more what is there until the file is opened anew.
        """
        with self._state:
            self._asked += 1
            mine = self._asked
            self._state.wait_for(lambda: self._settled >= mine or not self._under_way)
            if self._settled < mine:
                self._lead()
            if self._failure:
                raise db_exception.DBError(self._failure)

    def settle_soon(self) -> None:
        """Have it done within `LINGER` seconds, unless somebody who waits is faster."""
        with self._state:
            self._asked += 1
            self._owed = self._asked
            if self._pending:
                return
            self._pending = True
        later = threading.Timer(LINGER, self._settle_pending)
        later.daemon = True
        later.start()

    def _lead(self) -> None:
        """Make a trip for everybody who has asked so far, and let others ask meanwhile."""
        self._under_way, covered = True, self._asked
        self._state.release()
        try:
            failure = self._sync()
        finally:
            self._state.acquire()
            self._under_way = False
            self._state.notify_all()
        self._failure = self._failure or failure
        self._settled = covered

    def _sync(self) -> OSError | None:
        try:
            journal = os.open(self._path, os.O_RDONLY)  # each time: a new one may have begun
        except FileNotFoundError:
            return None  # it has been brought home, as always when the last connection is closed
        try:
            os.fdatasync(journal)
        except OSError as failure:
            LOG.critical("the disk did not take %s, restart the service: %s", self._path, failure)
            return failure
        finally:
            os.close(journal)
        return None

    def _settle_pending(self) -> None:
        with self._state:
            self._pending = False
            if self._settled >= self._owed:  # somebody who waited was faster
                return
        try:
            self.settle()
        except db_exception.DBError:
            LOG.debug("a trip of %s that nobody waits for has failed", self._path)
