"""Have a worker ready for its first request before that comes.

Whether the process that loads the application is a worker depends on the WSGI server: some load it in each worker,
some once, and fork. A process that has not forked after a moment is taken for a worker; if it forks, its children
are. Nothing that must not be shared is made before.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable

LOG = logging.getLogger(__name__)

MOMENT = 1.0
"""Seconds that a server which forks has to do so."""


def later(tasks: Iterable[Callable[[], None]], moment: float = MOMENT) -> None:
    """Run *tasks*, in a thread of their own each, in this process or in its children.

    A task that fails is no error: it is noted, and the first request tries again.
    """
    here = [_timer(task, moment) for task in tasks]
    os.register_at_fork(
        after_in_parent=lambda: [timer.cancel() for timer in here],
        after_in_child=lambda: [_timer(timer.args[0], 0).start() for timer in here],
    )
    for timer in here:
        timer.start()


def _timer(task: Callable[[], None], moment: float) -> threading.Timer:
    timer = threading.Timer(moment, _run, [task])
    timer.daemon = True
    return timer


def _run(task: Callable[[], None]) -> None:
    try:
        task()
    except Exception as error:  # noqa: BLE001 (whoever needs it meets it again, and is answered)
        LOG.info("not ready for the first request: %s", error)
