# SPDX-License-Identifier: Apache-2.0
"""Batches: what several threads want to write at once is written in one transaction.

1. A thread that finds no batch being written leads: it writes at once. Those that come meanwhile wait, and then one of
   them leads, and writes for all. So the more callers there are, the larger are the batches. One batch is written at a
   time.
2. The threads of one batch come again at about the same time, and the first of them would write alone. So if fewer
   wait than did for the last batch, the next one waits a moment for the others, a part of the time that the last one
   took. A caller that goes on alone waits once at most.
3. A batch has calls of one kind, that of the call that has waited longest. Claims and returns are written with other
   statements, so half a batch of each would need the statements of both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, cast

from oslo_db import exception as db_exception

from gsaas.db.database import OvertakenError

Call = TypeVar("Call")
Result = TypeVar("Result")

MOST = 32
"""Calls of a batch: its transaction must not hold so many locks that others wait for long."""

PAUSE = 0.2
"""The part of the time of the last batch for which the next one waits for more calls, if it would be smaller."""

MOST_PAUSE = 0.01
"""Seconds for which a batch waits at most."""


class Batches(Generic[Call, Result]):
    """Has the calls of several threads written by *write*, in batches; safe to share between threads.

    *write* gets the calls of a batch, and returns for each its result or an exception, which is raised to its caller.
    If it raises `oslo_db.exception.DBConnectionError` itself, that is raised to all of them: whether the batch was
    committed is not known. After any other error, each caller gets an `OvertakenError`: it tries again alone, and fails
    of its own error, if at all. *most* returns how many calls the next batch may have, and *kind* what is the same for
    the calls of one batch. *sleep* waits for a number of seconds.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Call]], Sequence[Result | Exception]],
        most: Callable[[], int] = lambda: MOST,
        kind: Callable[[Call], object] = type,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._write = write
        self._most = most
        self._kind = kind
        self._sleep = sleep
        self._waiting: list[_Caller[Call]] = []
        self._is_led = False
        """Whether a thread writes a batch, or is about to."""
        self._changed = threading.Condition()
        """Guards the two, and is notified after each batch."""
        self._last_waited = 0
        """Callers that waited when the last batch was taken from them."""
        self._last_took = 0.0
        """Seconds."""

    def commit(self, call: Call) -> Result:
        """Write *call*, with those of other threads if there are any; return its result, or raise its exception."""
        caller = _Caller(call)
        with self._changed:
            self._waiting.append(caller)
        try:
            while not self._is_written(caller):
                self._lead()
        except BaseException:
            with self._changed:  # nobody writes for a thread that goes on with an exception
                if caller in self._waiting:
                    self._waiting.remove(caller)
            raise
        if isinstance(caller.outcome, Exception):
            raise caller.outcome
        return cast(Result, caller.outcome)

    def _is_written(self, caller: _Caller[Call]) -> bool:
        """Wait until the call is written, or its thread has to lead; return which."""
        with self._changed:
            self._changed.wait_for(lambda: caller.is_done or not self._is_led)
            if not caller.is_done:
                self._is_led = True
            return caller.is_done

    def _lead(self) -> None:
        """Write for those that wait."""
        batch: list[_Caller[Call]] = []
        outcomes: Sequence[object] = ()
        begun = time.monotonic()
        try:
            if len(self._waiting) < self._last_waited:
                self._sleep(min(self._last_took * PAUSE, MOST_PAUSE))
            with self._changed:
                self._last_waited = len(self._waiting)
                kind = self._kind(self._waiting[0].call)
                alike = [caller for caller in self._waiting if self._kind(caller.call) == kind]
                batch += alike[: self._most()]
                for caller in batch:
                    self._waiting.remove(caller)
            outcomes = [_NOT_WRITTEN] * len(batch)
            begun = time.monotonic()
            outcomes = self._write([caller.call for caller in batch])
        except Exception as error:  # noqa: BLE001 - it is raised to the callers
            is_of_all = len(batch) == 1 or isinstance(error, db_exception.DBConnectionError)
            outcomes = [error if is_of_all else OvertakenError() for _ in batch]
        finally:
            with self._changed:
                self._last_took = time.monotonic() - begun
                for caller, outcome in zip(batch, outcomes, strict=True):
                    caller.outcome, caller.is_done = outcome, True
                self._is_led = False
                self._changed.notify_all()


_NOT_WRITTEN = RuntimeError("the thread that was to write this has ended")


class _Caller(Generic[Call]):
    """A thread that waits for what becomes of its call."""

    __slots__ = ("call", "is_done", "outcome")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.is_done = False
        self.outcome: object = None
