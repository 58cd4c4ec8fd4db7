# SPDX-License-Identifier: Apache-2.0
"""Group commit: what several threads want to write at once is written in one transaction.

1. A thread that finds no group being written writes at once. Those that come meanwhile wait, and one of them, the
   leader, writes for all. So the more callers there are, the larger are the groups.
2. The threads of one group come again at about the same time, and the first of them would write alone. So a group that
   is smaller than the last one waits a moment for the others, a part of the time that the last one took. A caller that
   goes on alone waits once at most.
3. Groups of different kinds that share a *turn* are written one after the other, too. The threads of a group of claims
   are soon those of a group of returns: written beside each other, each would have half of them, and a group of four
   costs hardly less than one of eight.
4. A call that has waited for long for the groups before it is written beside them. So there may be several leaders, and
   one of them may find that another has written its call.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
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

PATIENCE = 0.5
"""Seconds for which a call waits for the groups before it; then it is written beside them, because a transaction of
theirs waits for the lock of somebody else."""


class Turn:
    """Has groups of different kinds written one after the other; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since = 0.0
        """When the last group got the turn, as `time.monotonic` counts."""

    @contextmanager
    def wait_for(self, until: float) -> Iterator[None]:
        """Have the turn during the block.

        Do without it from *until* on, or when whoever has it now will have had it for `PATIENCE`.
        """
        left = min(until, self._since + PATIENCE) - time.monotonic()
        has_turn = self._lock.acquire(timeout=max(0.0, left))
        if has_turn:
            self._since = time.monotonic()
        try:
            yield
        finally:
            if has_turn:
                self._lock.release()


class GroupCommit(Generic[Call, Result]):
    """Has the calls of several threads written by *write*, in groups; safe to share between threads.

    *write* gets the calls of a group, and returns for each its result or an exception, which is raised to its caller.
    If it raises `oslo_db.exception.DBConnectionError` itself, that is raised to all of them: whether the group was
    committed is not known. After any other error, each caller gets an `OvertakenError`: it tries again alone, and fails
    of its own error, if at all. *sleep* waits for a number of seconds. Groups with the same *turn* are written at
    the same time only if one of them takes longer than `PATIENCE`.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Call]], Sequence[Result | Exception]],
        sleep: Callable[[float], None] = time.sleep,
        *,
        turn: Turn | None = None,
    ) -> None:
        self._write = write
        self._turn = turn or Turn()
        self._sleep = sleep
        self._lock = threading.Lock()
        self._waiting: deque[_Caller[Call]] = deque()
        self._leaders = 0
        """Threads that write a group, or are about to."""
        self._last_size = 0
        self._last_took = 0.0
        """Seconds."""

    def together(self, call: Call) -> Result:
        """Write *call*, with those of other threads if there are any; return its result, or raise its exception."""
        caller = _Caller(call)
        try:
            with self._lock:
                self._waiting.append(caller)
                if not self._leaders:
                    self._let_lead(caller)
            while True:
                if caller.leads:
                    self._write_group(caller)
                try:
                    outcome = caller.outcomes.get(timeout=PATIENCE)
                except Empty:
                    self._lose_patience(caller)
                    continue
                if outcome is not _LEAD:
                    return cast(Result, _result(outcome))
        except BaseException:
            self._forget(caller)
            raise

    def alone(self, call: Call) -> Result:
        """Write *call* in a transaction of its own, without waiting for other threads."""
        [outcome] = self._write([call])
        return cast(Result, _result(outcome))

    def _write_group(self, leader: _Caller[Call]) -> None:
        """Write for those that wait; then have the next one of them do so."""
        group: list[_Caller[Call]] = []
        outcomes: Sequence[object] = ()
        begun = time.monotonic()
        try:
            with self._turn.wait_for(leader.called_at + PATIENCE):
                if len(self._waiting) < self._last_size:
                    self._sleep(min(self._last_took * PAUSE, MOST_PAUSE))
                with self._lock:
                    size = min(len(self._waiting), MOST)
                    group += [self._waiting.popleft() for _ in range(size)]
                begun = time.monotonic()
                outcomes = [_NOT_WRITTEN] * len(group)
                if group:
                    outcomes = self._write([caller.call for caller in group])
        except Exception as error:  # noqa: BLE001 - it is raised to the callers
            is_of_all = len(group) == 1 or isinstance(error, db_exception.DBConnectionError)
            outcomes = [error if is_of_all else OvertakenError() for _ in group]
        finally:
            if group:
                self._last_size, self._last_took = len(group), time.monotonic() - begun
            with self._lock:
                self._pass_on(leader)
            for caller, outcome in zip(group, outcomes, strict=True):
                caller.outcomes.put(outcome)

    def _let_lead(self, caller: _Caller[Call]) -> None:
        """Have *caller* write the next group. Call it with the lock acquired."""
        caller.leads = True
        self._leaders += 1

    def _pass_on(self, leader: _Caller[Call]) -> None:
        """Have the next one lead instead of *leader*, if nobody else does. Call it with the lock acquired."""
        leader.leads = False
        self._leaders -= 1
        if self._waiting and not self._leaders:
            self._let_lead(self._waiting[0])
            self._waiting[0].outcomes.put(_LEAD)

    def _lose_patience(self, caller: _Caller[Call]) -> None:
        """Have *caller* lead beside others, if it is in no group yet."""
        with self._lock:
            if caller in self._waiting and not caller.leads:
                self._let_lead(caller)

    def _forget(self, caller: _Caller[Call]) -> None:
        """Have nobody wait for a caller whose thread goes on with an exception."""
        with self._lock:
            if caller in self._waiting:
                self._waiting.remove(caller)
            if caller.leads:
                self._pass_on(caller)


_LEAD = object()
"""What wakes a thread when it is its turn to write for all that wait."""

_NOT_WRITTEN = RuntimeError("the thread that was to write this has ended")


class _Caller(Generic[Call]):
    """A thread that waits for what becomes of its call."""

    __slots__ = ("call", "called_at", "leads", "outcomes")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.called_at = time.monotonic()
        self.leads = False
        """Whether it is its turn to write for all that wait."""
        self.outcomes: SimpleQueue[object] = SimpleQueue()


def _result(outcome: object) -> object:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
