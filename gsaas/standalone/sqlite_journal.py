# SPDX-License-Identifier: Apache-2.0
"""Syncs SQLite's write-ahead log to the disk: one sync for all commits that wait for it.

With `synchronous = FULL`, SQLite syncs each commit while the next writer waits, and a sync may take longer than the
rest of a transaction. With `NORMAL`, it writes the log and leaves the sync to this module; it still does the syncs that
keep the file consistent after a crash (https://www.sqlite.org/pragma.html#pragma_synchronous).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from oslo_db import exception as db_exception

LOG = logging.getLogger(__name__)

SYNC_DELAY = 0.1
"""Seconds after which commits are synced that no thread waits for."""


class Journal:
    """The write-ahead log beside the file *database*."""

    def __init__(self, database: str) -> None:
        self.on_failure: Callable[[], None] = lambda: None
        """Called once, when a sync has failed."""
        self._path = f"{database}-wal"
        self._state = threading.Condition()
        self._calls = self._synced = self._due = 0
        self._is_syncing = self._is_scheduled = False
        self._failure: OSError | None = None

    def sync(self) -> None:
        """Return when all that was committed before is on the disk.

        Raises `oslo_db.exception.DBConnectionError` if a sync fails. From then on every call raises it: what is on the
        disk is known again only when the file is opened anew.
        """
        with self._state:
            self._calls += 1
            this_call = self._calls
            self._state.wait_for(lambda: self._synced >= this_call or not self._is_syncing)
            if self._synced < this_call:
                self._sync_for_all()
            self._raise_failure()

    def check(self) -> None:
        """Raise `oslo_db.exception.DBConnectionError` if a sync has failed: what is written now may be lost."""
        with self._state:
            self._raise_failure()

    def sync_soon(self) -> None:
        """Sync within `SYNC_DELAY` seconds, or with an earlier call of `sync`."""
        with self._state:
            self._calls += 1
            self._due = self._calls
            if self._is_scheduled:
                return
            self._is_scheduled = True
        later = threading.Timer(SYNC_DELAY, self._sync_later)
        later.daemon = True
        later.start()

    def _sync_for_all(self) -> None:
        """Sync for all calls so far, and let further calls queue meanwhile; call it with the condition acquired."""
        self._is_syncing, covered = True, self._calls
        self._state.release()
        try:
            failure = self._sync()
        finally:
            self._state.acquire()
            self._is_syncing = False
            self._state.notify_all()
        is_first = failure is not None and self._failure is None
        self._failure = self._failure or failure
        self._synced = covered
        if is_first:
            self.on_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise db_exception.DBConnectionError(self._failure)

    def _sync(self) -> OSError | None:
        try:
            # Opened each time: SQLite may have begun a new log.
            journal = os.open(self._path, os.O_RDONLY)
            try:
                os.fdatasync(journal)
            finally:
                os.close(journal)
        except FileNotFoundError:
            return None  # SQLite has merged it into the database and removed it: the last connection was closed
        except OSError as failure:
            LOG.critical(
                "cannot sync %s to the disk, so nothing is written to it any more; look for the cause, and restart the "
                "service: %s",
                self._path,
                failure,
            )
            return failure
        return None

    def _sync_later(self) -> None:
        with self._state:
            self._is_scheduled = False
            if self._synced >= self._due:  # a call of sync was earlier
                return
        try:
            self.sync()
        except db_exception.DBError:
            LOG.debug("syncing %s has failed, and no thread waited for it", self._path)
        except Exception:
            LOG.exception("syncing %s has failed, and no thread waited for it", self._path)
