# SPDX-License-Identifier: Apache-2.0
"""Group commit: what several threads want to write at once is written in one transaction.

A thread that finds no group being written writes at once. Those that come meanwhile wait, and one of them writes for
all. So a single caller never waits for others to come, and the more callers there are, the larger are the groups.

The threads of one group come again at about the same time, and the first of them would write alone. So a group that is
smaller than the last one waits a moment for the others, a part of the time that the last one took.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar, cast

from oslo_db import exception as db_exception

from gsaas.db.database import OvertakenError

Call = TypeVar("Call")
Result = TypeVar("Result")

MOST = 32
"""Calls of a group: its transaction must not hold so many locks that others wait for long."""


PAUSE = 0.2
"""The part of the time of the last group for which the next one waits for more calls, if it would be smaller."""

MOST_PAUSE = 0.01
"""Seconds for which a group waits at most."""


class GroupCommit(Generic[Call, Result]):
    """Has the calls of several threads written by *write*, in groups; safe to share between threads.

    *write* gets the calls of a group, and returns for each its result or an exception, which is raised to its caller.
    If it raises `oslo_db.exception.DBConnectionError` itself, that is raised to all of them: whether the group was
    committed is not known. After any other error, each caller gets an `OvertakenError`: it tries again alone, and fails
    of its own error, if at all. *sleep* waits for a number of seconds.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Call]], Sequence[Result | Exception]],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._write = write
        self._sleep = sleep
        self._lock = threading.Lock()
        self._waiting: deque[_Caller[Call]] = deque()
        self._is_writing = False
        self._last_size = 0
        self._last_took = 0.0
        """Seconds."""

    def together(self, call: Call) -> Result:
        """Write *call*, with those of other threads if there are any; return its result, or raise its exception."""
        caller = _Caller(call)
        with self._lock:
            self._waiting.append(caller)
            leads, self._is_writing = not self._is_writing, True
        outcome: object = _LEAD if leads else caller.outcomes.get()
        if outcome is _LEAD:
            self._write_group()
            outcome = caller.outcomes.get()
        return cast(Result, _result(outcome))

    def alone(self, call: Call) -> Result:
        """Write *call* in a transaction of its own, without waiting for other threads."""
        [outcome] = self._write([call])
        return cast(Result, _result(outcome))

    def _write_group(self) -> None:
        """Write for those that wait, the first of which is this thread; then have the next one of them do so."""
        if len(self._waiting) < self._last_size:
            self._sleep(min(self._last_took * PAUSE, MOST_PAUSE))
        begun = time.monotonic()
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST))]
        outcomes: Sequence[object] = [_NOT_WRITTEN] * len(group)
        try:
            outcomes = self._write([caller.call for caller in group])
        except Exception as error:  # noqa: BLE001 - it is raised to the callers
            is_of_all = len(group) == 1 or isinstance(error, db_exception.DBConnectionError)
            outcomes = [error if is_of_all else OvertakenError() for _ in group]
        finally:
            self._last_size, self._last_took = len(group), time.monotonic() - begun
            with self._lock:
                self._is_writing = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].outcomes.put(_LEAD)
            for caller, outcome in zip(group, outcomes, strict=True):
                caller.outcomes.put(outcome)


_LEAD = object()
"""What a thread gets instead of an outcome when it is its turn to write for all that wait."""

_NOT_WRITTEN = RuntimeError("the thread that was to write this has ended")


class _Caller(Generic[Call]):
    """A thread that waits for what becomes of its call."""

    __slots__ = ("call", "outcomes")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.outcomes: SimpleQueue[object] = SimpleQueue()


def _result(outcome: object) -> object:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
