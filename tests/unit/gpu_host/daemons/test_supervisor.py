# SPDX-License-Identifier: Apache-2.0
"""The supervisor in front of a runner that starts nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gsaas.gpu_host.daemons import unit
from gsaas.gpu_host.daemons.health import HealthCheckFailed
from gsaas.gpu_host.daemons.plan import DaemonTimeouts
from gsaas.gpu_host.daemons.runner import Changes, DaemonRunner
from gsaas.gpu_host.daemons.supervisor import Supervisor
from gsaas.gpu_host.daemons.unit import UnitState
from gsaas.gpu_host.fence.layout import ControlGroup
from gsaas.objects.daemon import Daemon, DaemonState
from tests.support.waiting import until

DAEMON = Daemon("GPU-1", 20000, 1024, "lease", 0)
TWO_PORTS = replace(DAEMON, ports=2)
NO_SECOND_CHECK = DaemonTimeouts(start=3600, check_starting=3600, first_pause=3600)
CHECKED_OFTEN = DaemonTimeouts(start=3600, check_healthy=0.01)


class ManualRunner(DaemonRunner):
    """Its daemons listen when a test says so."""

    def __init__(self) -> None:
        self.running: dict[str, UnitState] = {}
        self.listening = threading.Event()
        self.checks = 0
        self.version = "7fbd364"
        self.starts = 0
        self.begins = "active"
        """The state of a unit that was just started."""
        self.printed = ""
        self.asked, self.answer = threading.Event(), threading.Event()
        self.run: str | None = None
        """Which run ended, where its last line can be looked for."""
        self.looks = 0
        """How often somebody looked whether a port is taken."""
        self.other_port: int | None = None
        """A port on which something listens although `listening` is not set."""
        self.group: ControlGroup | None = None

    def units(self) -> dict[str, UnitState]:
        return dict(self.running)

    def start(self, daemon: Daemon, restarts: int) -> None:
        state = UnitState(unit.name(daemon.key), unit.describe(daemon, restarts), self.begins)
        self.running[daemon.key] = state
        self.starts += 1

    def ending(self, key: str) -> tuple[str, str | None]:
        return "ended with status 1", self.run

    def control_group(self, daemon: Daemon) -> ControlGroup | None:
        return self.group

    def has_processes(self, state: UnitState | None) -> bool:
        return state is not None

    def taken_port(self, daemon: Daemon) -> int | None:
        self.looks += 1
        return daemon.port if self.listening.is_set() else self.other_port

    def stop(self, key: str) -> None:
        del self.running[key]

    def kill(self, key: str) -> None:
        raise NotImplementedError

    def forget(self, key: str) -> None:
        """There is nothing to forget."""

    def last_line(self, run: str) -> str:
        self.asked.set()
        self.answer.wait()
        return self.printed

    def where_to_look(self, key: str) -> str:
        return "the journal"

    def check(self, daemon: Daemon) -> str | None:
        self.checks += 1
        if not self.listening.is_set():
            raise HealthCheckFailed("takes no connection")
        return self.version


class NoChanges(Changes):
    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()

    def fileno(self) -> int:
        return self._ours.fileno()

    def take(self) -> bool:
        return False

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


@pytest.fixture
def runner() -> ManualRunner:
    return ManualRunner()


@pytest.fixture
def supervisor(runner: ManualRunner) -> Iterator[Supervisor]:
    supervisor = Supervisor(runner, NO_SECOND_CHECK, NoChanges)
    supervisor.start()
    yield supervisor
    supervisor.stop()


@pytest.fixture
def hasty(runner: ManualRunner) -> Iterator[Supervisor]:
    """A supervisor of one daemon, which starts it again at once."""
    timeouts = DaemonTimeouts(3600, check_starting=3600, first_pause=0.01, longest_pause=0.01)
    supervisor = Supervisor(runner, timeouts, NoChanges)
    supervisor.start()
    supervisor.set_desired([DAEMON])
    yield supervisor
    supervisor.stop()


def state_of(supervisor: Supervisor) -> DaemonState:
    (status,) = supervisor.statuses()
    return status.state


def test_a_daemon_is_healthy_as_soon_as_it_listens_and_not_at_the_next_check(supervisor, runner):
    supervisor.set_desired([DAEMON])
    until(lambda: runner.checks, "the first check")
    assert state_of(supervisor) is DaemonState.STARTING
    runner.listening.set()
    until(lambda: state_of(supervisor) is DaemonState.HEALTHY, "it to be healthy", patience=20)


def test_the_first_of_its_ports_is_the_one_that_is_checked_when_it_listens(supervisor, runner):
    runner.other_port = TWO_PORTS.port + 1
    supervisor.set_desired([TWO_PORTS])
    until(lambda: runner.looks > 3, "looks for its ports", patience=20)
    assert runner.checks <= 1, "the one that does not wait for a port"
    runner.listening.set()
    until(lambda: state_of(supervisor) is DaemonState.HEALTHY, "it to be healthy", patience=20)


def test_the_fence_is_told_that_each_of_its_ports_is_a_daemons_own(supervisor, runner):
    runner.group = ControlGroup(7, 3)
    supervisor.set_desired([TWO_PORTS])
    both = {20000: runner.group, 20001: runner.group}
    until(lambda: supervisor.listeners() == both, "its listeners", patience=20)


@pytest.mark.slow
def test_a_daemon_is_gone_when_nothing_listens_on_any_of_its_ports(supervisor, runner):
    runner.listening.set()
    supervisor.set_desired([TWO_PORTS])
    until(lambda: state_of(supervisor) is DaemonState.HEALTHY, "it to be healthy", patience=20)
    runner.other_port = 20001
    runner.listening.clear()
    supervisor.set_desired([])
    until(lambda: not runner.running, "its end", patience=20)
    before = runner.looks
    until(lambda: runner.looks > before + 2, "looks for its ports", patience=20)
    (status,) = supervisor.statuses()
    assert status.state is DaemonState.DRAINING
    assert status.detail == "a process still listens on port 20001"
    runner.other_port = None
    until(lambda: not supervisor.statuses(), "the daemon to be gone", patience=20)


def test_nobody_looks_for_its_port_before_systemd_says_that_its_program_runs(supervisor, runner):
    """So that the pauses between two looks grow with the time of the program, and not with that of its walls."""
    runner.begins = "activating"
    supervisor.set_desired([DAEMON])
    until(lambda: runner.checks, "the first check")
    assert runner.looks == 0
    (key,) = runner.running
    runner.running[key] = replace(runner.running[key], active="active")
    supervisor.set_desired([DAEMON])  # and look, as after a signal of systemd
    until(lambda: runner.looks > 1, "looks for its port")
    runner.listening.set()
    until(lambda: state_of(supervisor) is DaemonState.HEALTHY, "it to be healthy", patience=20)


def test_the_version_that_a_daemon_told_is_known_also_after_its_end(supervisor, runner):
    assert supervisor.version() is None
    runner.listening.set()
    supervisor.set_desired([DAEMON])
    until(lambda: supervisor.version() == "7fbd364", "the version", patience=20)


def test_what_a_daemon_tells_after_its_first_answer_changes_no_version(runner):
    """A tenant may have taken it over by then, and other tenants are told the version."""
    told: list[str | None] = []
    supervisor = Supervisor(
        runner, CHECKED_OFTEN, NoChanges, lambda: told.append(supervisor.version())
    )
    runner.listening.set()
    supervisor.start()
    try:
        supervisor.set_desired([DAEMON])
        until(lambda: state_of(supervisor) is DaemonState.HEALTHY, "it to be healthy", patience=20)
        runner.version = "another"
        enough = runner.checks + 3
        until(lambda: runner.checks >= enough, "three more checks", patience=20)
        assert supervisor.version() == "7fbd364"
        assert "another" not in told
    finally:
        supervisor.stop()


def test_a_daemon_of_another_version_is_believed_in_its_first_answer(supervisor, runner):
    runner.listening.set()
    supervisor.set_desired([DAEMON])
    until(lambda: supervisor.version() == "7fbd364", "the version", patience=20)
    runner.version = "another"
    supervisor.set_desired([DAEMON, Daemon("GPU-2", 20001, 1024, "lease", 1)])
    until(lambda: supervisor.version() == "another", "the new version", patience=20)


@pytest.mark.slow
def test_a_daemon_that_was_healthy_has_failed_no_start(runner, hasty):
    """It may end as often as it likes: a launch waits for it."""
    runner.listening.set()
    for starts in range(1, 7):
        until(lambda: state_of(hasty) is DaemonState.HEALTHY, "it to be healthy", patience=20)
        runner.running.clear()
        hasty.set_desired([DAEMON])  # and look at once
        until(lambda starts=starts: runner.starts > starts, "another start", patience=20)
    (status,) = hasty.statuses()
    assert (status.restarts, status.failed_starts) == (6, 0)


@pytest.mark.slow
def test_the_starts_of_a_daemon_that_was_not_healthy_after_them_are_counted(runner, hasty):
    for starts in range(1, 4):
        until(lambda starts=starts: runner.starts >= starts, "a start", patience=20)
        runner.running.clear()
        hasty.set_desired([DAEMON])  # and look at once
    until(lambda: runner.starts == 4, "the fourth start", patience=20)
    assert hasty.statuses()[0].failed_starts == 3
    runner.listening.set()
    until(lambda: state_of(hasty) is DaemonState.HEALTHY, "it to be healthy", patience=20)
    assert hasty.statuses()[0].failed_starts == 0


@pytest.mark.slow
@pytest.mark.parametrize("printed", ["no licence found", ""])
def test_a_failed_start_is_told_with_what_the_daemon_printed(supervisor, runner, printed):
    """The launch that gives it up for that says why, however long the journal takes."""
    runner.run, runner.printed = "a run", printed
    supervisor.set_desired([DAEMON])
    until(lambda: runner.starts, "the start", patience=20)
    runner.running.clear()
    supervisor.set_desired([DAEMON])  # and look at once
    until(runner.asked.is_set, "the question what it printed", patience=20)
    (status,) = supervisor.statuses()
    assert (status.state, status.failed_starts) == (DaemonState.DOWN, 0)
    runner.answer.set()
    until(lambda: supervisor.statuses()[0].failed_starts, "the failed start", patience=20)
    (status,) = supervisor.statuses()
    assert status.detail == "ended with status 1" + (printed and f": {printed}")
