# SPDX-License-Identifier: Apache-2.0
"""Writes to the log what hosts cause there: short lines, and few of them.

A host that is broken into may send as many messages as it likes. What they cause in the logs of controllers must be
small beside them, and must not hide what other hosts cause.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable

from gsaas.objects.printable import one_line
from gsaas.objects.rate import RateLimit

MOST_LINES = 100
"""Lines in a minute about all hosts together."""
LONGEST = 500
"""Characters of a line."""
_LIBRARY = tuple(
    f"{library}.{module}"
    for library in ("oslo_messaging", "oslo.messaging")  # loggers that oslo.log makes have a dot
    for module in (
        *("rpc.server", "rpc.dispatcher", "_drivers.common"),
        *("_drivers.impl_rabbit", "_drivers.amqpdriver", "_drivers.amqp"),
    )
)
"""The loggers of oslo.messaging that write about single messages, also about those that nobody has signed."""
_OF_LIBRARY = 10
"""Lines in a minute of one kind by these."""


class HostLog:
    """Writes at most one line of each kind about each host in a minute. Safe to share between threads."""

    def __init__(
        self,
        logger: logging.Logger,
        most: int = MOST_LINES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._limit = RateLimit(1, most)
        self._lock = threading.Lock()

    def write(
        self, level: int, host: str, kind: str, text: str, error: Exception | None = None
    ) -> None:
        """Write *text*, which is of some *kind*, about *host*; with the traceback of *error* if that is given."""
        with self._lock:
            if not self._limit.allows(f"{kind} {host}", self._clock()):
                return
        self._logger.log(level, "%s", one_line(text, LONGEST), exc_info=error)


def where(error: BaseException) -> str:
    """Return the file and the line in which *error* was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else "nowhere"


class _Short(logging.Filter):
    """Makes each record one short line without a traceback, and lets few of each kind pass."""

    def __init__(self) -> None:
        super().__init__()
        self._limit = RateLimit(_OF_LIBRARY, MOST_LINES)
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return True
        with self._lock:
            if not self._limit.allows(f"{record.name} {record.msg}", time.monotonic()):
                return False
        said = record.getMessage()
        error = record.exc_info and record.exc_info[1]
        if error:
            said = f"{said}: {type(error).__name__}: {error} ({where(error)})"
        record.msg, record.args = one_line(said, LONGEST), None
        record.exc_info = record.exc_text = None
        return True


_SHORT = _Short()


def shorten_library() -> None:
    """Have oslo.messaging write short lines, and few, about messages that it cannot deliver to any method."""
    for name in _LIBRARY:
        logging.getLogger(name).addFilter(_SHORT)  # once: a logger has each filter only once
