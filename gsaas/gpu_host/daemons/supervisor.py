# SPDX-License-Identifier: Apache-2.0
"""Keeps the daemons of a host as they are desired: observes them, asks `plan` for actions, and carries these out.

Until the desired daemons are known, those that an earlier monitor left are watched and restarted, and none is ended:
tenants may be computing on them. Stopping the supervisor ends the supervision, not the daemons.

What lives is what the runner lists. Changes only say when to look; while systemd does not answer, nothing is concluded.
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
from dataclasses import dataclass, field

from gsaas.gpu_host.daemons import plan as planning
from gsaas.gpu_host.daemons.health import HealthCheckFailed, LimitLost
from gsaas.gpu_host.daemons.plan import (
    Check,
    DaemonTimeouts,
    Forget,
    Kill,
    ObservedDaemon,
    RecordExit,
    Start,
    Terminate,
)
from gsaas.gpu_host.daemons.runner import CannotStart, Changes, DaemonRunner, NotYet
from gsaas.gpu_host.daemons.strangers import Strangers
from gsaas.gpu_host.daemons.unavailable import SystemdUnavailable
from gsaas.gpu_host.fence.layout import ControlGroup
from gsaas.objects.daemon import Daemon, DaemonState, DaemonStatus, DaemonUsage

LOG = logging.getLogger(__name__)

PARALLEL_CHECKS = 4
"""Health checks that run at the same time."""
LOOK_INTERVAL = 10.0
"""Seconds between two looks at the units, if nothing happens."""
RETRY_INTERVAL = 1.0
"""Seconds until systemd is asked again, after it did not answer, or could not start a daemon yet."""
POLL_INTERVAL = 0.1
"""Seconds between two looks at a unit whose processes end."""
PORT_POLL_INTERVAL = 1.0
"""Seconds between two checks of a port that should become free."""
FIRST_LISTEN_PAUSE = 0.001
"""Seconds between two looks whether a program that runs listens already; the pause grows with its age."""
LAST_LINE_ATTEMPTS = 10
"""How often the journal is asked for what a daemon printed last: journald may still be reading it."""


@dataclass
class _SupervisedDaemon:
    """The supervisor's memory of one daemon; its fields are those of `ObservedDaemon` where they have its names."""

    daemon: Daemon
    started_at: float
    restarts: int = 0
    alive: bool = False
    executed: threading.Event = field(default_factory=threading.Event)
    """systemd has said that its program runs; before that it makes its user, its mounts and its sandbox."""
    has_processes: bool = False
    checked_at: float | None = None
    checking: bool = False
    """A health check is running."""
    healthy: bool = False
    healthy_at: float | None = None
    failures: int = 0
    failed_starts: int = 0
    """Starts in a row after which it ended without having been healthy."""
    retry_at: float | None = None
    terminated_at: float | None = None
    kills: int = 0
    killed_at: float | None = None
    group: ControlGroup | None = None
    """What the fence knows it by; None: it has none yet."""
    postponed: bool = False
    """It was not started yet, because something of its last run is being removed."""
    given_up: bool = False
    """It was killed because it did not become healthy in time, or has no memory limit any more."""
    explained: bool = True
    """What it printed last is known, or was looked for in vain; until then its end is not told as a failed start."""
    detail: str | None = None
    """Why it is not healthy, for the report."""


class Supervisor:
    """Supervises the daemons of one host in a thread of its own.

    *watch* returns what tells that a unit has changed. *on_change* is called without the lock, after the status or the
    control group of any daemon has changed, or a problem.
    """

    def __init__(
        self,
        runner: DaemonRunner,
        timeouts: DaemonTimeouts,
        watch: Callable[[], Changes],
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._timeouts = timeouts
        self._watch = watch
        self._changes: Changes | None = None
        self._on_change = on_change
        self._clock = clock
        self._lock = threading.Lock()
        self._desired: dict[str, Daemon] | None = None
        self._entries: dict[str, _SupervisedDaemon] = {}
        self._strangers = Strangers(runner, timeouts.stop, clock)
        self._announced: tuple[object, ...] = ([], {}, [], None)
        """Statuses, listeners, problems and version at the last call of *on_change*."""
        self._results: queue.SimpleQueue[
            tuple[str, float, HealthCheckFailed | None, str | None]
        ] = queue.SimpleQueue()
        """Of health checks: the daemon's key, its start, the failure, None for a success, and its version."""
        self._version: str | None = None
        """What the daemon that became healthy last told then; all have the same program."""
        self._last_lines: queue.SimpleQueue[tuple[str, float, str]] = queue.SimpleQueue()
        """Of daemons that ended: the key, the start, and the last line that was printed, if any."""
        self._stopping = False
        self._wake_lock = threading.Lock()
        """Guards `_wake_fd` against its end while a thread uses it."""
        self._wake_fd: int | None = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._checks = ThreadPoolExecutor(PARALLEL_CHECKS, thread_name_prefix="daemon-check")
        self._thread = threading.Thread(target=self._run, name="daemons", daemon=True)

    def adopt(self) -> None:
        """Find the daemons of an earlier monitor; raises `SystemdUnavailable`."""
        self._changes = self._watch()
        now = self._clock()
        for daemon, restarts, state in self._runner.adopt():
            LOG.info("daemon %s was started by an earlier monitor", daemon.key)
            entry = _SupervisedDaemon(daemon, now, restarts, state.alive, has_processes=True)
            # Until its first check it counts as healthy: it was, most probably, and must not be reported as down.
            if entry.alive:
                entry.healthy, entry.healthy_at = True, now
                entry.group = self._runner.control_group(daemon)
            self._entries[daemon.key] = entry
        self._strangers.end(self._runner.units(), self._entries.keys())

    def start(self) -> None:
        """Begin to supervise."""
        self._thread.start()

    def stop(self) -> None:
        """End the supervision, and leave every daemon as it is."""
        self._stopping = True
        self._wake()
        if self._thread.ident is not None:
            self._thread.join()
        self._checks.shutdown(cancel_futures=True)
        with self._wake_lock:
            if self._wake_fd is not None:
                os.close(self._wake_fd)
            self._wake_fd = None
        if self._changes is not None:
            self._changes.close()
        self._entries.clear()

    def set_desired(self, daemons: Iterable[Daemon]) -> None:
        """Set the desired daemons; all others are ended. Returns at once; `statuses` shows the progress."""
        with self._lock:
            self._desired = {daemon.key: daemon for daemon in daemons}
        self._wake()

    def statuses(self) -> list[DaemonStatus]:
        """Return the status of every daemon that is desired or not gone yet, by key."""
        with self._lock:
            return self._statuses()

    def listeners(self) -> dict[int, ControlGroup]:
        """Return the control group of each daemon that lives, by its port."""
        with self._lock:
            return self._listeners()

    def usages(self) -> dict[Daemon, DaemonUsage]:
        """Return what each daemon that lives has used up to now, if that is known."""
        with self._lock:
            living = [(each.daemon, each.group) for each in self._entries.values() if each.alive]
        found = {daemon: self._runner.usage(daemon, group) for daemon, group in living}
        return {daemon: usage for daemon, usage in found.items() if usage is not None}

    def version(self) -> str | None:
        """Return the version that the daemon reported which became healthy last; None if none has yet."""
        return self._version

    def problems(self) -> list[str]:
        """Return what it cannot end, as sentences."""
        with self._lock:
            return self._find_problems()

    def wait_until_gone(self, timeout: float) -> bool:
        """Wait up to *timeout* seconds until no daemon is left; return whether none is. No daemon may be desired."""
        deadline = time.monotonic() + timeout
        while self.statuses() or self.problems():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_INTERVAL)
        return True

    def _wake(self) -> None:
        with self._wake_lock:
            if self._wake_fd is not None:
                os.eventfd_write(self._wake_fd, 1)

    def _run(self) -> None:
        while not self._stopping:
            try:
                pause = self._take_turn()
            except Exception:
                # Without this thread no daemon would be started or ended any more, and nothing would say so.
                LOG.exception("the daemons stay as they are, because of an unexpected error")
                self._unwatch()
                pause = RETRY_INTERVAL
            self._wait(min(pause, LOOK_INTERVAL))

    def _take_turn(self) -> float:
        """Reconcile, and announce what changed; return the seconds until the next turn."""
        try:
            if self._changes is None:
                self._changes = self._watch()
            with self._lock:
                pause = self._reconcile()
        except SystemdUnavailable as error:
            LOG.warning("the daemons stay as they are: %s", error)
            self._unwatch()
            pause = RETRY_INTERVAL
        with self._lock:
            news = self._statuses(), self._listeners(), self._find_problems(), self._version
        if news != self._announced:
            self._announced = news
            self._on_change()
        return pause

    def _unwatch(self) -> None:
        if self._changes is not None:
            self._changes.close()
            self._changes = None

    def _wait(self, seconds: float) -> None:
        """Wait until a unit changes, `_wake` is called, or *seconds* have passed."""
        wake_fd = self._wake_fd
        if wake_fd is None:
            return
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(wake_fd, select.POLLIN)
            if self._changes is not None:
                poll.register(self._changes.fileno(), select.POLLIN)
            ready = [descriptor for descriptor, _ in poll.poll(left * 1000)]
            if wake_fd in ready:
                os.eventfd_read(wake_fd)
                return
            try:
                if ready and self._changes is not None and self._changes.take():
                    return
            except SystemdUnavailable:
                self._unwatch()
                return

    def _reconcile(self) -> float:
        """Carry out every action that is due; return the seconds until the next call is due."""
        self._take_results()
        self._look()
        while True:
            desired = self._effective_desired()
            # systemd has no second unit of a name.
            desired = {key: desired[key] for key in desired.keys() - self._strangers.keys}
            observed = {key: self._observe(entry) for key, entry in self._entries.items()}
            actions = planning.plan(desired, observed, self._clock(), self._timeouts)
            # A start, a recorded end and a removal make further actions due at once. The effect of a signal or of a
            # check shows later, and planning again now would only repeat it. Every action is carried out: any() over
            # a generator would stop at the first.
            progress = [self._carry_out(action) for action in actions]
            if not any(progress):
                return self._pause(desired, observed)

    def _pause(self, desired: dict[str, Daemon], observed: dict[str, ObservedDaemon]) -> float:
        moment = planning.next_due(desired, observed, self._timeouts)
        pause = LOOK_INTERVAL if moment is None else moment - self._clock()
        now = self._clock()
        for key, known in observed.items():
            if planning.state(desired.get(key), known) is DaemonState.DRAINING:
                # A tenth of the time since: most end soon, and one that does not is not asked about too often.
                since = now if known.terminated_at is None else known.terminated_at
                pause = min(
                    pause, (now - since) / 10 if known.has_processes else PORT_POLL_INTERVAL
                )
        if (due := self._strangers.due()) is not None:
            pause = min(pause, due)
        # A check that is running wakes the thread when it ends, even if the next one is overdue by then.
        return max(pause, POLL_INTERVAL)

    def _effective_desired(self) -> dict[str, Daemon]:
        """Return the desired daemons; while these are not known, all that there are."""
        if self._desired is None:
            return {key: entry.daemon for key, entry in self._entries.items()}
        return self._desired

    def _observe(self, entry: _SupervisedDaemon) -> ObservedDaemon:
        key = entry.daemon.key
        draining = (
            entry.terminated_at is not None or self._effective_desired().get(key) != entry.daemon
        )
        has_processes = entry.alive or entry.has_processes
        return ObservedDaemon(
            daemon=entry.daemon,
            alive=entry.alive,
            has_processes=has_processes,
            started_at=entry.started_at,
            # No further check is due while one is running.
            checked_at=float("inf") if entry.checking else entry.checked_at,
            healthy=entry.healthy,
            healthy_at=entry.healthy_at,
            failures=entry.failures,
            retry_at=entry.retry_at,
            terminated_at=entry.terminated_at,
            kills=entry.kills,
            killed_at=entry.killed_at,
            port_taken=draining
            and not has_processes
            and self._runner.taken_port(entry.daemon) is not None,
        )

    def _look(self) -> None:
        """Read which daemons live and which have processes."""
        units = self._runner.units()
        for key, entry in self._entries.items():
            state = units.get(key)
            was_alive, entry.alive = entry.alive, state is not None and state.alive
            if state is not None and state.executed:
                entry.executed.set()
            entry.has_processes = self._runner.has_processes(state)
            if not entry.has_processes:
                entry.group = None
            elif entry.alive and (entry.group is None or not entry.healthy):
                # It may have been started anew by somebody else.
                entry.group = self._runner.control_group(entry.daemon)
            if was_alive and not entry.alive:
                self._record_how_it_ended(entry)
        self._strangers.end(units, self._entries.keys())

    def _record_how_it_ended(self, entry: _SupervisedDaemon) -> None:
        entry.healthy = False
        if entry.terminated_at is not None:
            return
        key = entry.daemon.key
        how, run = self._runner.ending(key)
        if not entry.given_up:
            entry.detail = how
        LOG.warning("daemon %s %s; %s shows more", key, how, self._runner.where_to_look(key))
        if run is not None and not entry.given_up:
            entry.explained = False
            self._checks.submit(self._find_last_line, key, entry.started_at, run)

    def _find_last_line(self, key: str, started_at: float, run: str) -> None:
        """Look for what a daemon printed last, in a thread of the pool."""
        line = ""
        try:
            for _ in range(LAST_LINE_ATTEMPTS):
                if self._stopping or (line := self._runner.last_line(run)):
                    break
                time.sleep(POLL_INTERVAL)
        finally:
            self._last_lines.put((key, started_at, line))
            self._wake()

    def _take_results(self) -> None:
        while not self._last_lines.empty():
            key, started_at, line = self._last_lines.get()
            entry = self._entries.get(key)
            if entry is not None and entry.started_at == started_at:
                entry.explained = True
                if line and not entry.alive:
                    entry.detail = f"{entry.detail}: {line}"
        while not self._results.empty():
            key, started_at, failure, version = self._results.get()
            entry = self._entries.get(key)
            if entry is None or entry.started_at != started_at:
                continue  # it is about an earlier run of the daemon
            entry.checking = False
            entry.checked_at = self._clock()
            if not entry.alive or entry.given_up:
                continue
            entry.healthy = failure is None
            entry.detail = None if failure is None else f"it {failure}"
            if isinstance(failure, LimitLost):
                LOG.warning("daemon %s %s", key, failure)
                entry.given_up = True
                self._runner.kill(key)
            if entry.healthy and entry.healthy_at is None:
                entry.healthy_at = self._clock()
                # Later a tenant may have taken the daemon over, and the version is told to other tenants.
                self._version = version or self._version
                entry.failed_starts = 0

    def _carry_out(self, action: planning.Action) -> bool:
        """Carry out an action; return whether it may make further actions due at once."""
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
                self._runner.stop(key)
            case Kill(key):
                entry = self._entries[key]
                if entry.alive and entry.terminated_at is None and not entry.given_up:
                    entry.given_up = True
                    entry.detail = (
                        f"did not become healthy in {self._timeouts.start:g} s: {entry.detail}"
                    )
                entry.kills += 1
                entry.killed_at = self._clock()
                self._runner.kill(key)
                if entry.kills == planning.STUCK_AFTER:
                    LOG.warning("daemon %s: %s", key, self._cannot_be_killed(key))
            case RecordExit(key):
                self._record_exit(self._entries[key])
                return True
            case Forget(key):
                self._runner.forget(key)
                del self._entries[key]
                return True
        return False

    def _start(self, daemon: Daemon) -> None:
        previous = self._entries.get(daemon.key)
        restarts = 0
        if previous is not None:
            restarts = previous.restarts + (not previous.postponed)
        entry = _SupervisedDaemon(
            daemon,
            self._clock(),
            restarts,
            failures=0 if previous is None else previous.failures,
            failed_starts=0 if previous is None else previous.failed_starts,
        )
        self._entries[daemon.key] = entry
        try:
            self._runner.start(daemon, restarts)
            entry.alive = entry.has_processes = True
        except CannotStart as error:
            entry.detail = str(error)
            LOG.warning("daemon %s %s", daemon.key, error)
        except NotYet as error:
            # No failure of the daemon: neither is a restart counted, nor does the pause become longer.
            entry.postponed, entry.retry_at = True, self._clock() + RETRY_INTERVAL
            entry.detail = str(error)
            LOG.info("daemon %s %s", daemon.key, error)
        if not entry.alive:
            return
        threading.Thread(
            target=self._check_when_it_listens,
            args=(daemon, entry.started_at, entry.executed),
            name=f"start-{daemon.key}",
            daemon=True,
        ).start()

    def _check_when_it_listens(
        self, daemon: Daemon, started_at: float, executed: threading.Event
    ) -> None:
        """Check a daemon that was started as soon as it listens: its consumer waits for that.

        systemd tells when its program runs. The kernel tells nobody when that begins to listen, so this looks often at
        first, then as rarely as `plan`.
        """
        began: float | None = None
        while self._is_starting(daemon.key, started_at):
            if began is None:
                if executed.wait(POLL_INTERVAL):
                    began = time.monotonic()
                continue
            if self._runner.taken_port(daemon) == daemon.port:  # where checks connect to
                self._check(daemon, started_at)
                return
            age = time.monotonic() - began
            time.sleep(min(max(FIRST_LISTEN_PAUSE, age / 10), POLL_INTERVAL))

    def _is_starting(self, key: str, started_at: float) -> bool:
        entry = self._entries.get(key)
        if self._stopping or entry is None or entry.started_at != started_at:
            return False
        return entry.alive and entry.healthy_at is None and not entry.given_up

    def _record_exit(self, entry: _SupervisedDaemon) -> None:
        now = self._clock()
        known = self._observe(entry)
        entry.failures = planning.failures_after(known, now, self._timeouts)
        entry.retry_at = now + planning.backoff(entry.failures, self._timeouts)
        if entry.healthy_at is None:
            entry.failed_starts += 1
        entry.healthy_at = None

    def _check(self, daemon: Daemon, started_at: float) -> None:
        """Check the health of a daemon, in a thread of the pool."""
        failure = version = None
        try:
            version = self._runner.check(daemon)
        except HealthCheckFailed as error:
            failure = error
        except Exception as error:
            LOG.exception("the health check of daemon %s failed", daemon.key)
            failure = HealthCheckFailed(f"could not be checked: {error}")
        self._results.put((daemon.key, started_at, failure, version))
        self._wake()

    def _statuses(self) -> list[DaemonStatus]:
        desired = self._effective_desired()
        statuses = []
        for key in sorted(desired.keys() | self._entries.keys()):
            entry = self._entries.get(key)
            if entry is None:
                detail = self._strangers.problem(key)
                statuses.append(DaemonStatus(desired[key], DaemonState.STARTING, detail=detail))
                continue
            known = self._observe(entry)
            state = planning.state(desired.get(key), known)
            detail = None if state is DaemonState.HEALTHY else entry.detail
            if planning.is_stuck(known):
                detail = self._cannot_be_killed(key)
            elif state is DaemonState.DRAINING and (taken := self._runner.taken_port(entry.daemon)):
                detail = f"a process still listens on port {taken}"
            # Whoever gives the daemon up because of its last failed start tells the tenant what it printed.
            failed_starts = entry.failed_starts - (not entry.explained)
            statuses.append(
                DaemonStatus(entry.daemon, state, entry.restarts, detail, max(0, failed_starts))
            )
        return statuses

    def _listeners(self) -> dict[int, ControlGroup]:
        return {
            port: entry.group
            for entry in self._entries.values()
            if entry.group is not None
            for port in entry.daemon.all_ports
        }

    def _find_problems(self) -> list[str]:
        stuck = [
            f"daemon {key}: {self._cannot_be_killed(key)}"
            for key, entry in sorted(self._entries.items())
            if entry.kills and planning.is_stuck(self._observe(entry))
        ]
        return [*stuck, *self._strangers.problems()]

    def _cannot_be_killed(self, key: str) -> str:
        return (
            "one of its processes does not end, because it waits for something in the kernel, such as a device; until "
            f"it ends, the GPU is given to no other lease. See {self._runner.where_to_look(key)}"
        )
