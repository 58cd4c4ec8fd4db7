# SPDX-License-Identifier: Apache-2.0
"""What to do next about the daemons of a host, from desired and observed state. Pure: no I/O.

1. A daemon that has to go is asked to end (SIGTERM), given `DaemonTimeouts.stop` seconds, and killed with all its
   children. It is forgotten, which confirms that it is gone, only when no process of it is left and its port is free.
   A process that waits for a device may survive that; it is killed again after a pause that doubles each time.
2. When the first process of a daemon ends, its children are killed before it is started again: they would go on
   serving without supervision.
3. A daemon that ends is started again after a back-off that doubles each time; one that never becomes healthy counts
   as ended. A daemon that was healthy and stops answering is left alone: its tenant's computation may still run.
4. The same key with other contents is another daemon: the old one goes first.

This module uses no process, file or clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gsaas.objects.daemon import Daemon, DaemonState

FIRST_KILL_PAUSE = 0.1
"""Seconds until the processes of a daemon that are left are killed again, the first time."""
LONGEST_KILL_PAUSE = 10.0
STUCK_AFTER = 6
"""A process that so many kills have not ended waits for something in the kernel."""


@dataclass(frozen=True)
class DaemonTimeouts:
    """How long the steps of a daemon's life take, in seconds."""

    start: float = 30.0
    """Until a started daemon has to be healthy."""
    stop: float = 10.0
    """From asking a daemon to end until it is killed."""
    first_pause: float = 1.0
    """Back-off before a daemon that ended once is started again."""
    longest_pause: float = 60.0
    """Upper bound of the back-off. After being healthy for longer, a daemon begins with `first_pause` again."""
    check_starting: float = 0.1
    """Between two health checks of a daemon that starts, at first; the interval grows."""
    check_healthy: float = 10.0
    """Between two health checks of a daemon that is healthy."""


@dataclass(frozen=True)
class ObservedDaemon:
    """A daemon that exists, or has just ended, and its history. Moments are seconds of a monotonic clock."""

    daemon: Daemon
    alive: bool
    """Its first process lives."""
    has_processes: bool
    """Any process of it lives."""
    started_at: float
    checked_at: float | None = None
    """When its last health check ended; infinite while one is running; None before the first."""
    healthy: bool = False
    """The last health check succeeded."""
    healthy_at: float | None = None
    """When it became healthy for the first time since its start; None before."""
    failures: int = 0
    """How many times in a row it ended."""
    retry_at: float | None = None
    """When it may be started again; None: its end has not been recorded."""
    terminated_at: float | None = None
    """When it was asked to end."""
    kills: int = 0
    """How many times its processes were killed."""
    killed_at: float | None = None
    """When, the last time."""
    port_taken: bool = False
    """None of its processes is left, and yet a process listens on one of its ports."""


@dataclass(frozen=True)
class Start:
    """Start a daemon."""

    daemon: Daemon


@dataclass(frozen=True)
class Check:
    """Check the health of a daemon."""

    key: str


@dataclass(frozen=True)
class Terminate:
    """Ask a daemon to end."""

    key: str


@dataclass(frozen=True)
class Kill:
    """End every process of a daemon now."""

    key: str


@dataclass(frozen=True)
class RecordExit:
    """Count the end of a daemon as a failure, and set when it may start again."""

    key: str


@dataclass(frozen=True)
class Forget:
    """Forget a daemon of which nothing is left."""

    key: str


Action = Start | Check | Terminate | Kill | RecordExit | Forget


def plan(
    desired: Mapping[str, Daemon],
    observed: Mapping[str, ObservedDaemon],
    now: float,
    timeouts: DaemonTimeouts,
) -> list[Action]:
    """Return the actions that are due at *now*, at most one for each key, in the order of the keys."""
    actions: list[Action] = []
    for key in sorted(desired.keys() | observed.keys()):
        known = observed.get(key)
        if known is None:
            actions.append(Start(desired[key]))
        elif (action := _next_action(desired.get(key), known, now, timeouts)) is not None:
            actions.append(action)
    return actions


def next_due(
    desired: Mapping[str, Daemon],
    observed: Mapping[str, ObservedDaemon],
    timeouts: DaemonTimeouts,
) -> float | None:
    """Return when `plan` begins to return actions for the same state; None if it never does."""
    moments = [
        moment
        for key, known in observed.items()
        for moment in _deadlines(desired.get(key), known, timeouts)
    ]
    return min(moments, default=None)


def backoff(failures: int, timeouts: DaemonTimeouts) -> float:
    """Return the seconds before the start that follows this many failures in a row."""
    # The exponent is bounded: 2.0 ** 1024 would raise OverflowError.
    return min(timeouts.first_pause * 2.0 ** (min(failures, 32) - 1), timeouts.longest_pause)


def kill_pause(kills: int) -> float:
    """Return the seconds from this kill, the first is 1, to the next one."""
    return min(FIRST_KILL_PAUSE * 2.0 ** (min(kills, 32) - 1), LONGEST_KILL_PAUSE)


def is_stuck(known: ObservedDaemon) -> bool:
    """Return whether it has processes that cannot be killed."""
    return known.has_processes and known.kills >= STUCK_AFTER


def failures_after(known: ObservedDaemon, now: float, timeouts: DaemonTimeouts) -> int:
    """Return the number of failures in a row, including the end at *now*."""
    since = known.healthy_at
    was_stable = since is not None and now - since > timeouts.longest_pause
    return 1 if was_stable else known.failures + 1


def state(desired: Daemon | None, known: ObservedDaemon) -> DaemonState:
    """Return the state to report of a daemon; *desired* is the daemon wanted under its key, if any."""
    if known.terminated_at is not None or desired != known.daemon:
        return DaemonState.DRAINING
    if not known.alive:
        return DaemonState.DOWN
    if known.healthy:
        return DaemonState.HEALTHY
    return DaemonState.STARTING if known.healthy_at is None else DaemonState.UNRESPONSIVE


def _next_action(
    desired: Daemon | None, known: ObservedDaemon, now: float, timeouts: DaemonTimeouts
) -> Action | None:
    key = known.daemon.key
    if state(desired, known) is DaemonState.DRAINING:
        if not known.has_processes:
            return None if known.port_taken else Forget(key)
        if known.terminated_at is None:
            return Terminate(key)
        return Kill(key) if now >= _next_kill(known, known.terminated_at + timeouts.stop) else None
    if not known.alive:
        if known.has_processes:
            return Kill(key) if now >= _next_kill(known, now) else None
        if known.retry_at is None:
            return RecordExit(key)
        return Start(known.daemon) if now >= known.retry_at else None
    if known.healthy_at is None and now >= _next_kill(known, known.started_at + timeouts.start):
        return Kill(key)
    return Check(key) if now >= _next_check(known, timeouts) else None


def _deadlines(
    desired: Daemon | None, known: ObservedDaemon, timeouts: DaemonTimeouts
) -> Iterator[float]:
    """Yield the moments at which `_next_action` changes its answer although nothing has happened."""
    if state(desired, known) is DaemonState.DRAINING:
        if known.has_processes and known.terminated_at is not None:
            yield _next_kill(known, known.terminated_at + timeouts.stop)
    elif not known.alive:
        if known.has_processes:
            if known.killed_at is not None:
                yield _next_kill(known, known.killed_at)
        elif known.retry_at is not None:
            yield known.retry_at
    else:
        yield _next_check(known, timeouts)
        if known.healthy_at is None:
            yield _next_kill(known, known.started_at + timeouts.start)


def _next_kill(known: ObservedDaemon, first: float) -> float:
    """Return when its processes are to be killed next; *first* is when they are to be killed first."""
    if known.killed_at is None:
        return first
    return max(first, known.killed_at + kill_pause(known.kills))


def _next_check(known: ObservedDaemon, timeouts: DaemonTimeouts) -> float:
    if known.checked_at is None:
        return known.started_at
    if known.healthy:
        return known.checked_at + timeouts.check_healthy
    # A tenth of the time since its start: quick daemons are served soon, slow ones are not checked too often.
    age = known.checked_at - known.started_at
    return known.checked_at + min(max(timeouts.check_starting, age / 10), timeouts.check_healthy)
