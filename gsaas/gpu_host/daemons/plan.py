"""What to do next about the daemons of a host, from what is wanted and what is there: values in, actions out.

1. A daemon that is to go is asked to (SIGTERM), given `Times.stop` seconds, and killed with all its children. It is
   forgotten, which confirms that it is gone, only when no process of it is left and nobody listens on its port.
2. A daemon whose first process ended is killed for good, children included, before it is started again: they would go
   on serving what nobody supervises.
3. One that ends is started again after a pause that doubles each time; one that never becomes healthy counts as ended.
   A daemon that was healthy and only stops answering is left alone: its tenant's computation may still be running.
4. The same key with other contents is another daemon: the old one goes first.

This module knows no process, file or clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gsaas.objects.daemon import Daemon, DaemonState


@dataclass(frozen=True)
class Times:
    """How long things take, in seconds."""

    start: float = 30.0
    """Until a daemon has to be healthy."""
    stop: float = 10.0
    """From asking a daemon to end until it is killed."""
    first_pause: float = 1.0
    """Before a daemon that ended is started again."""
    longest_pause: float = 60.0
    """What that pause grows to. A daemon that was healthy for longer begins anew."""
    check_starting: float = 0.1
    """Between two health checks of a daemon that starts, at first; they become rarer."""
    check_healthy: float = 10.0
    """Between two of one that is healthy."""


@dataclass(frozen=True)
class Found:
    """One daemon that is there, or was a moment ago, and what is remembered of it."""

    daemon: Daemon
    alive: bool
    """Its first process lives."""
    members: bool
    """Some process of it lives."""
    started_at: float
    checked_at: float | None = None
    """When its last health check began."""
    healthy: bool = False
    healthy_at: float | None = None
    """Since when it has been healthy, the first time since its start; None before."""
    failures: int = 0
    """How often in a row it ended."""
    retry_at: float | None = None
    """When it may be started again; None: its end has not been noted."""
    terminated_at: float | None = None
    """When it was asked to end."""
    port_taken: bool = False
    """With all its processes gone, somebody listens on its port."""


@dataclass(frozen=True)
class Start:
    daemon: Daemon


@dataclass(frozen=True)
class Check:
    """Ask a daemon whether it is well."""

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
class NoteEnd:
    """Note that a daemon ended by itself, and when it may start again."""

    key: str


@dataclass(frozen=True)
class Forget:
    """Nothing of a daemon is left."""

    key: str


Action = Start | Check | Terminate | Kill | NoteEnd | Forget


def plan(
    wanted: Mapping[str, Daemon], found: Mapping[str, Found], now: float, times: Times
) -> list[Action]:
    """Return what is to be done now, in the order of the keys; nothing is to be done twice for one daemon."""
    actions: list[Action] = []
    for key in sorted(wanted.keys() | found.keys()):
        known = found.get(key)
        if known is None:
            actions.append(Start(wanted[key]))
        elif (action := _next(wanted.get(key), known, now, times)) is not None:
            actions.append(action)
    return actions


def due(wanted: Mapping[str, Daemon], found: Mapping[str, Found], times: Times) -> float | None:
    """When `plan` will say something without anything having happened; None: never."""
    moments = [
        moment for key, known in found.items() for moment in _moments(wanted.get(key), known, times)
    ]
    return min(moments, default=None)


def pause(failures: int, times: Times) -> float:
    """Seconds before the start that follows this many failures in a row."""
    return min(times.first_pause * 2.0 ** (min(failures, 32) - 1), times.longest_pause)


def failures_after(known: Found, now: float, times: Times) -> int:
    """Failures in a row, now that the daemon has ended once more."""
    since = known.healthy_at
    lasted = since is not None and now - since > times.longest_pause
    return 1 if lasted else known.failures + 1


def state(wanted: Daemon | None, known: Found) -> DaemonState:
    """How a daemon fares, in one word."""
    if known.terminated_at is not None or wanted != known.daemon:
        return DaemonState.DRAINING
    if not known.alive:
        return DaemonState.DOWN
    if known.healthy:
        return DaemonState.HEALTHY
    return DaemonState.STARTING if known.healthy_at is None else DaemonState.UNRESPONSIVE


def _next(wanted: Daemon | None, known: Found, now: float, times: Times) -> Action | None:
    key = known.daemon.key
    if state(wanted, known) is DaemonState.DRAINING:
        if not known.members:
            return None if known.port_taken else Forget(key)
        if known.terminated_at is None:
            return Terminate(key)
        return Kill(key) if now >= known.terminated_at + times.stop else None
    if not known.alive:
        if known.members:
            return Kill(key)
        if known.retry_at is None:
            return NoteEnd(key)
        return Start(known.daemon) if now >= known.retry_at else None
    if known.healthy_at is None and now >= known.started_at + times.start:
        return Kill(key)
    return Check(key) if now >= _next_check(known, times) else None


def _moments(wanted: Daemon | None, known: Found, times: Times) -> Iterator[float]:
    if state(wanted, known) is DaemonState.DRAINING:
        if known.members and known.terminated_at is not None:
            yield known.terminated_at + times.stop
    elif not known.alive:
        if known.retry_at is not None:
            yield known.retry_at
    else:
        yield _next_check(known, times)
        if known.healthy_at is None:
            yield known.started_at + times.start


def _next_check(known: Found, times: Times) -> float:
    if known.checked_at is None:
        return known.started_at
    if known.healthy:
        return known.checked_at + times.check_healthy
    # A tenth of what it has taken so far: quick ones are not kept waiting, slow ones not pestered.
    took = known.checked_at - known.started_at
    return known.checked_at + min(max(times.check_starting, took / 10), times.check_healthy)
