# SPDX-License-Identifier: Apache-2.0
"""Prepare an API worker for its first request: connections, tokens and caches are made before it arrives.

Some WSGI servers load the application in each worker, others load it once and fork the workers. So a process that has
not forked within `FORK_WINDOW` seconds counts as a worker; after a fork, only the child does. Until then nothing is
made that processes must not share.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable

LOG = logging.getLogger(__name__)

FORK_WINDOW = 1.0
"""Seconds within which a server that forks does so, after it has loaded the application."""


Task = Callable[[], object]
"""Prepares something that requests need; its result is not used."""


def schedule(tasks: Iterable[Task], delay: float = FORK_WINDOW) -> None:
    """Run each of *tasks* in a thread of its own, after *delay* seconds here or at once in a forked child.

    A task that raises is logged and otherwise ignored: the first request does its work again.
    """
    timers = [(task, _timer(task, delay)) for task in tasks]

    def cancel_all() -> None:
        for _, timer in timers:
            timer.cancel()

    def start_all_now() -> None:
        # Threads do not survive a fork: the child needs timers of its own.
        for task, _ in timers:
            _timer(task, 0).start()

    os.register_at_fork(after_in_parent=cancel_all, after_in_child=start_all_now)
    for _, timer in timers:
        timer.start()


def _timer(task: Task, delay: float) -> threading.Timer:
    timer = threading.Timer(delay, _run, [task])
    timer.daemon = True
    return timer


def _run(task: Task) -> None:
    try:
        task()
    except Exception as error:  # noqa: BLE001 (a request that needs the same raises it again, and reports it)
        LOG.info("not ready for the first request: %s", error)
