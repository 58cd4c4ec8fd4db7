# SPDX-License-Identifier: Apache-2.0
"""Sends notifications in a thread of its own, so that no request waits for the bus.

1. `put` never blocks. If the buffer is full, the notification is dropped and counted.
2. A notification that is being built or sent may fail; it is logged, and dropped.
3. The thread starts with the first notification: a WSGI server forks its workers after it has loaded the application,
   and threads do not survive a fork.
4. What is in the buffer when the process is killed is lost: a notification is sent at most once.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

from gsaas.metrics import counted

LOG = logging.getLogger(__name__)

Job = Callable[[], None]
"""Builds notifications and sends them."""


class Outbox:
    """A buffer of at most *size* jobs, and the thread that does them in order."""

    def __init__(self, size: int) -> None:
        self._jobs: queue.Queue[Job | None] = queue.Queue(size)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, job: Job) -> None:
        """Add *job* to the buffer, or drop it if the buffer is full."""
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            counted.notification_dropped("buffer-full")
            return
        if self._thread is None:
            self._start()

    def close(self, timeout: float = 2.0) -> None:
        """Do what is in the buffer, for up to *timeout* seconds; further jobs may not be done."""
        if self._thread is None:
            return
        deadline = time.monotonic() + timeout
        try:
            self._jobs.put(None, timeout=timeout)
        except queue.Full:
            LOG.warning("the message bus accepts no notifications; those in the buffer are dropped")
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="notifications", daemon=True)
                thread.start()
                self._thread = thread

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # the next ones may succeed
                counted.notification_dropped("error")
                LOG.exception("a notification could not be sent")
