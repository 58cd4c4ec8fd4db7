# SPDX-License-Identifier: Apache-2.0
"""Group commit: what several threads want to write at once is written in one transaction.

A thread that finds no group being written writes at once. Those that come meanwhile wait, and one of them writes for
all. So a single caller never waits for others to come, and the more callers there are, the larger are the groups.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, cast

from oslo_db import exception as db_exception

from gsaas.db.database import OvertakenError

Call = TypeVar("Call")
Result = TypeVar("Result")

MOST = 32
"""Calls of a group: its transaction must not hold so many locks that others wait for long."""


class GroupCommit(Generic[Call, Result]):
    """Has the calls of several threads written by *write*, in groups; safe to share between threads.

    *write* gets the calls of a group, and returns for each its result or an exception, which is raised to its caller.
    If it raises `oslo_db.exception.DBConnectionError` itself, that is raised to all of them: whether the group was
    committed is not known. After any other error, each caller gets an `OvertakenError`: it tries again alone, and fails
    of its own error, if at all.
    """

    def __init__(self, write: Callable[[Sequence[Call]], Sequence[Result | Exception]]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._waiting: deque[_Caller[Call]] = deque()
        self._is_writing = False

    def together(self, call: Call) -> Result:
        """Write *call*, with those of other threads if there are any; return its result, or raise its exception."""
        caller = _Caller(call)
        with self._lock:
            self._waiting.append(caller)
            caller.leads, self._is_writing = not self._is_writing, True
        if not caller.leads:
            caller.woken.wait()
            # The threads of the last group go first: they may have the next call already.
            time.sleep(0)
        if caller.leads:
            self._write_group()
        return cast(Result, _result(caller.outcome))

    def alone(self, call: Call) -> Result:
        """Write *call* in a transaction of its own, without waiting for other threads."""
        [outcome] = self._write([call])
        return cast(Result, _result(outcome))

    def _write_group(self) -> None:
        """Write for those that wait, the first of which is this thread; then have the next one of them do so."""
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST))]
        outcomes: Sequence[object] = [_NOT_WRITTEN] * len(group)
        try:
            outcomes = self._write([caller.call for caller in group])
        except Exception as error:  # noqa: BLE001 - it is raised to the callers
            is_of_all = len(group) == 1 or isinstance(error, db_exception.DBConnectionError)
            outcomes = [error if is_of_all else OvertakenError() for _ in group]
        finally:
            with self._lock:
                self._is_writing = bool(self._waiting)
                if self._waiting:
                    self._waiting[0].leads = True
                    self._waiting[0].woken.set()
            for caller, outcome in zip(group, outcomes, strict=True):
                caller.outcome = outcome
                caller.woken.set()


_NOT_WRITTEN = RuntimeError("the thread that was to write this has ended")


class _Caller(Generic[Call]):
    """A thread that waits for what becomes of its call."""

    __slots__ = ("call", "leads", "outcome", "woken")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.leads = False
        """Whether it is its turn to write for all that wait."""
        self.woken = threading.Event()
        self.outcome: object = None


def _result(outcome: object) -> object:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
