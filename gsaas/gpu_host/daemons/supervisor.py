"""Keeps the daemons of a host as they are wanted: looks, asks `plan` what is next, does it, and looks again.

Until somebody has said what is wanted, daemons that a monitor before us left are watched and nothing is ended: they may
be carrying somebody's computation. Stopping ends the watching, not the daemons.
"""

from __future__ import annotations

import logging
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gsaas.gpu_host.daemons import plan as planning
from gsaas.gpu_host.daemons.health import Unhealthy
from gsaas.gpu_host.daemons.launcher import CannotStart, Launcher, Process
from gsaas.gpu_host.daemons.plan import Check, Forget, Found, Kill, NoteEnd, Start, Terminate, Times
from gsaas.objects.daemon import Condition, Daemon, DaemonState

LOG = logging.getLogger(__name__)

CHECKS_AT_ONCE = 4
TRIM_INTERVAL = 10.0
"""Seconds between two looks at the size of logs."""
SWEEP_INTERVAL = 3600.0
LOOK_AGAIN = 0.05
"""Seconds between two looks at what makes no noise: a group that is being emptied."""
LOOK_AGAIN_SELDOM = 1.0
"""The same for a port that should be free."""


@dataclass
class _Entry:
    """What we remember of one daemon."""

    daemon: Daemon
    process: Process | None
    started_at: float
    restarts: int = 0
    checked_at: float | None = None
    checking: bool = False
    healthy: bool = False
    healthy_at: float | None = None
    failures: int = 0
    retry_at: float | None = None
    terminated_at: float | None = None
    given_up: bool = False
    """It was killed because it did not get well."""
    detail: str | None = None

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.watch is not None


class Supervisor:
    """*on_change* is called, without a lock held, after any daemon came to fare otherwise than before."""

    def __init__(
        self,
        launcher: Launcher,
        times: Times,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launcher = launcher
        self._times = times
        self._on_change = on_change
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted: dict[str, Daemon] | None = None
        self._entries: dict[str, _Entry] = {}
        self._told: list[Condition] = []
        self._results: queue.SimpleQueue[tuple[str, float, str | None]] = queue.SimpleQueue()
        self._stopping = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._checks = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="daemon-check")
        self._thread = threading.Thread(target=self._run, name="daemons", daemon=True)

    def start(self) -> None:
        """Take over what is there, and begin to watch."""
        now = self._clock()
        for record, process in self._launcher.adopt():
            LOG.info("daemon %s was started before us", record.daemon.key)
            entry = _Entry(record.daemon, process, now, record.restarts)
            if entry.alive:  # until it was asked, it is taken to be as well as when we last asked
                entry.healthy, entry.healthy_at = True, now
            self._entries[record.daemon.key] = entry
        self._thread.start()

    def stop(self) -> None:
        """Watch no more, and leave every daemon as it is."""
        self._stopping = True
        self._nudge()
        if self._thread.ident is not None:
            self._thread.join()
        self._checks.shutdown(cancel_futures=True)
        os.close(self._wake)
        for entry in self._entries.values():
            if entry.process is not None:
                entry.process.close()
        self._entries.clear()

    def want(self, daemons: Iterable[Daemon]) -> None:
        """Have these daemons and no others. Returns at once; `conditions` tells how far it is."""
        with self._lock:
            self._wanted = {daemon.key: daemon for daemon in daemons}
        self._nudge()

    def conditions(self) -> list[Condition]:
        """Every daemon that is wanted or not gone yet, by key."""
        with self._lock:
            return self._conditions()

    def wait_until_gone(self, patience: float) -> bool:
        """Wait for up to *patience* seconds until no daemon is left; whether none is. For those who want none."""
        deadline = time.monotonic() + patience
        while self.conditions():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_AGAIN)
        return True

    def _nudge(self) -> None:
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        trim_at = sweep_at = self._clock()
        while not self._stopping:
            with self._lock:
                pause = self._turn()
                conditions = self._conditions()
                watched = [e.process.watch for e in self._entries.values() if e.alive]
            if conditions != self._told:
                self._told = conditions
                self._on_change()
            now = self._clock()
            if now >= trim_at:
                trim_at = now + TRIM_INTERVAL
                for condition in conditions:
                    self._launcher.trim(condition.daemon)
            if now >= sweep_at:
                sweep_at = now + SWEEP_INTERVAL
                self._launcher.sweep()
            self._wait(watched, min(pause, TRIM_INTERVAL))

    def _wait(self, watched: list[int], seconds: float) -> None:
        poll = select.poll()
        for descriptor in (*watched, self._wake):
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)]
        if self._wake in ready:
            os.eventfd_read(self._wake)

    def _turn(self) -> float:
        """Do everything that is to be done now; return seconds until the next look."""
        self._take_results()
        for entry in self._entries.values():
            self._notice_end(entry)
        while True:
            wanted = self._wishes()
            found = {key: self._found(entry) for key, entry in self._entries.items()}
            now = self._clock()
            actions = planning.plan(wanted, found, now, self._times)
            # What was killed, checked or asked to end shows its effect later; the rest at once.
            progress = [self._do(action) for action in actions]
            if not any(progress):
                return self._pause(wanted, found)

    def _pause(self, wanted: dict[str, Daemon], found: dict[str, Found]) -> float:
        moment = planning.due(wanted, found, self._times)
        pause = TRIM_INTERVAL if moment is None else moment - self._clock()
        for key, known in found.items():
            if known.members and not known.alive:
                pause = min(max(pause, 0.0), LOOK_AGAIN)
            elif planning.state(wanted.get(key), known) is DaemonState.DRAINING:
                pause = min(pause, LOOK_AGAIN if known.members else LOOK_AGAIN_SELDOM)
        # A check that is under way will wake us, however long it has been due.
        return max(pause, LOOK_AGAIN)

    def _wishes(self) -> dict[str, Daemon]:
        if self._wanted is None:
            return {key: entry.daemon for key, entry in self._entries.items()}
        return self._wanted

    def _found(self, entry: _Entry) -> Found:
        key = entry.daemon.key
        draining = entry.terminated_at is not None or self._wishes().get(key) != entry.daemon
        # Reading a group costs something, and matters only where its first process does not tell.
        members = entry.alive or self._launcher.has_members(key)
        return Found(
            daemon=entry.daemon,
            alive=entry.alive,
            members=members,
            started_at=entry.started_at,
            checked_at=float("inf") if entry.checking else entry.checked_at,
            healthy=entry.healthy,
            healthy_at=entry.healthy_at,
            failures=entry.failures,
            retry_at=entry.retry_at,
            terminated_at=entry.terminated_at,
            port_taken=draining and not members and self._launcher.port_taken(entry.daemon),
        )

    def _notice_end(self, entry: _Entry) -> None:
        if not entry.alive:
            return
        poll = select.poll()
        poll.register(entry.process.watch, select.POLLIN)
        if not poll.poll(0):
            return
        status = entry.process.status
        entry.process.close()
        entry.healthy = False
        if entry.terminated_at is None:
            how = "ended" if status is None else f"ended with status {status}"
            said = self._launcher.last_line(entry.daemon)
            if not entry.given_up:
                entry.detail = f"{how}: {said}" if said else how
            LOG.warning("daemon %s %s", entry.daemon.key, entry.detail)

    def _take_results(self) -> None:
        while not self._results.empty():
            key, started_at, trouble = self._results.get()
            entry = self._entries.get(key)
            if entry is None or entry.started_at != started_at:
                continue  # about a former one
            entry.checking = False
            entry.checked_at = self._clock()
            if not entry.alive or entry.given_up:
                continue
            entry.healthy = trouble is None
            entry.detail = None if trouble is None else f"it {trouble}"
            if entry.healthy and entry.healthy_at is None:
                entry.healthy_at = self._clock()

    def _do(self, action: planning.Action) -> bool:
        """Whether another look, now, finds things different."""
        match action:
            case Start(daemon):
                self._start(daemon)
                return True
            case Check(key):
                entry = self._entries[key]
                entry.checking = True
                self._checks.submit(self._check, entry.daemon, entry.started_at)
            case Terminate(key):
                entry = self._entries[key]
                entry.terminated_at = self._clock()
                self._launcher.terminate(key, entry.process)
            case Kill(key):
                entry = self._entries[key]
                if entry.alive and entry.terminated_at is None and not entry.given_up:
                    entry.given_up = True
                    entry.detail = f"did not get well in {self._times.start:g} s: {entry.detail}"
                self._launcher.kill(key)
            case NoteEnd(key):
                self._note_end(self._entries[key])
                return True
            case Forget(key):
                return self._forget(key)
        return False

    def _start(self, daemon: Daemon) -> None:
        former = self._entries.get(daemon.key)
        restarts = 0 if former is None else former.restarts + 1
        entry = _Entry(
            daemon,
            None,
            self._clock(),
            restarts,
            failures=0 if former is None else former.failures,
        )
        self._entries[daemon.key] = entry
        try:
            entry.process = self._launcher.start(daemon, restarts)
        except CannotStart as error:
            entry.detail = str(error)
            LOG.warning("daemon %s %s", daemon.key, error)

    def _note_end(self, entry: _Entry) -> None:
        now = self._clock()
        known = self._found(entry)
        entry.failures = planning.failures_after(known, now, self._times)
        entry.retry_at = now + planning.pause(entry.failures, self._times)
        entry.healthy_at = None

    def _forget(self, key: str) -> bool:
        try:
            self._launcher.forget(key)
        except OSError as error:
            # The kernel takes a moment to empty a group whose last process has just ended.
            LOG.debug("daemon %s cannot be forgotten yet: %s", key, error)
            return False
        del self._entries[key]
        return True

    def _check(self, daemon: Daemon, started_at: float) -> None:
        trouble = None
        try:
            self._launcher.check(daemon)
        except Unhealthy as error:
            trouble = str(error)
        except Exception as error:
            LOG.exception("the health check of daemon %s failed", daemon.key)
            trouble = f"could not be asked: {error}"
        self._results.put((daemon.key, started_at, trouble))
        self._nudge()

    def _conditions(self) -> list[Condition]:
        wanted = self._wishes()
        found = []
        for key in sorted(wanted.keys() | self._entries.keys()):
            entry = self._entries.get(key)
            if entry is None:
                found.append(Condition(wanted[key], DaemonState.STARTING))
                continue
            state = planning.state(wanted.get(key), self._found(entry))
            detail = None if state is DaemonState.HEALTHY else entry.detail
            if state is DaemonState.DRAINING and self._launcher.port_taken(entry.daemon):
                detail = f"somebody still listens on port {entry.daemon.port}"
            found.append(Condition(entry.daemon, state, entry.restarts, detail))
        return found
