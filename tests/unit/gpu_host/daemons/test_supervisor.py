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
from gsaas.gpu_host.daemons.runner import DaemonRunner
from gsaas.gpu_host.daemons.supervisor import Supervisor
from gsaas.gpu_host.daemons.systemd import Changes
from gsaas.gpu_host.daemons.unit import UnitState
from gsaas.objects.daemon import Daemon, DaemonState
from tests.support.waiting import until

DAEMON = Daemon("GPU-1", 20000, 1024, "lease", 0)
NO_SECOND_CHECK = DaemonTimeouts(start=3600, check_starting=3600)
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
        self.looks = 0
        """How often somebody looked whether a port is taken."""

    def units(self) -> dict[str, UnitState]:
        return dict(self.running)

    def start(self, daemon: Daemon, restarts: int) -> None:
        state = UnitState(unit.name(daemon.key), unit.describe(daemon, restarts), self.begins)
        self.running[daemon.key] = state
        self.starts += 1

    def ending(self, key: str) -> tuple[str, None]:
        return "ended with status 1", None

    def control_group(self, daemon: Daemon) -> None:
        return None

    def has_processes(self, state: UnitState | None) -> bool:
        return state is not None

    def port_taken(self, daemon: Daemon) -> bool:
        self.looks += 1
        return self.listening.is_set()

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
