# SPDX-License-Identifier: Apache-2.0
"""The supervisor in front of a launcher that starts nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gsaas.gpu_host.daemons import unit
from gsaas.gpu_host.daemons.health import HealthCheckFailed
from gsaas.gpu_host.daemons.launcher import Launcher
from gsaas.gpu_host.daemons.plan import DaemonTimeouts
from gsaas.gpu_host.daemons.supervisor import Supervisor
from gsaas.gpu_host.daemons.systemd import Changes
from gsaas.gpu_host.daemons.unit import UnitState
from gsaas.objects.daemon import Daemon, DaemonState
from tests.support.waiting import until

DAEMON = Daemon("GPU-1", 20000, 1024, "lease", 0)
NO_SECOND_CHECK = DaemonTimeouts(start=3600, check_starting=3600)
CHECKED_OFTEN = DaemonTimeouts(start=3600, check_healthy=0.01)


class ManualLauncher(Launcher):
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
def launcher() -> ManualLauncher:
    return ManualLauncher()


@pytest.fixture
def supervisor(launcher: ManualLauncher) -> Iterator[Supervisor]:
    supervisor = Supervisor(launcher, NO_SECOND_CHECK, NoChanges)
    supervisor.start()
    yield supervisor
    supervisor.stop()


@pytest.fixture
def hasty(launcher: ManualLauncher) -> Iterator[Supervisor]:
    """A supervisor of one daemon, which starts it again at once."""
    timeouts = DaemonTimeouts(3600, check_starting=3600, first_pause=0.01, longest_pause=0.01)
    supervisor = Supervisor(launcher, timeouts, NoChanges)
    supervisor.start()
    supervisor.set_desired([DAEMON])
    yield supervisor
    supervisor.stop()


def state_of(supervisor: Supervisor) -> DaemonState:
    (status,) = supervisor.statuses()
    return status.state


def test_a_daemon_is_healthy_as_soon_as_it_listens_and_not_at_the_next_check(supervisor, launcher):
    supervisor.set_desired([DAEMON])
    until(lambda: launcher.checks, "the first check")
    assert state_of(supervisor) is DaemonState.STARTING
    launcher.listening.set()
    until(lambda: state_of(supervisor) is DaemonState.HEALTHY, "it to be healthy", patience=20)


def test_nobody_looks_for_its_port_before_systemd_says_that_its_program_runs(supervisor, launcher):
    """So that the pauses between two looks grow with the time of the program, and not with that of its walls."""
    launcher.begins = "activating"
    supervisor.set_desired([DAEMON])
    until(lambda: launcher.checks, "the first check")
    assert launcher.looks == 0
    (key,) = launcher.running
    launcher.running[key] = replace(launcher.running[key], active="active")
    supervisor.set_desired([DAEMON])  # and look, as after a signal of systemd
    until(lambda: launcher.looks > 1, "looks for its port")
    launcher.listening.set()
    until(lambda: state_of(supervisor) is DaemonState.HEALTHY, "it to be healthy", patience=20)


def test_the_version_that_a_daemon_told_is_known_also_after_its_end(supervisor, launcher):
    assert supervisor.version() is None
    launcher.listening.set()
    supervisor.set_desired([DAEMON])
    until(lambda: supervisor.version() == "7fbd364", "the version", patience=20)


def test_what_a_daemon_tells_after_its_first_answer_changes_no_version(launcher):
    """A tenant may have taken it over by then, and other tenants are told the version."""
    told: list[str | None] = []
    supervisor = Supervisor(
        launcher, CHECKED_OFTEN, NoChanges, lambda: told.append(supervisor.version())
    )
    launcher.listening.set()
    supervisor.start()
    try:
        supervisor.set_desired([DAEMON])
        until(lambda: state_of(supervisor) is DaemonState.HEALTHY, "it to be healthy", patience=20)
        launcher.version = "another"
        enough = launcher.checks + 3
        until(lambda: launcher.checks >= enough, "three more checks", patience=20)
        assert supervisor.version() == "7fbd364"
        assert "another" not in told
    finally:
        supervisor.stop()


def test_a_daemon_of_another_version_is_believed_in_its_first_answer(supervisor, launcher):
    launcher.listening.set()
    supervisor.set_desired([DAEMON])
    until(lambda: supervisor.version() == "7fbd364", "the version", patience=20)
    launcher.version = "another"
    supervisor.set_desired([DAEMON, Daemon("GPU-2", 20001, 1024, "lease", 1)])
    until(lambda: supervisor.version() == "another", "the new version", patience=20)


def test_a_daemon_that_was_healthy_has_failed_no_start(launcher, hasty):
    """It may end as often as it likes: a launch waits for it."""
    launcher.listening.set()
    for starts in range(1, 7):
        until(lambda: state_of(hasty) is DaemonState.HEALTHY, "it to be healthy", patience=20)
        launcher.running.clear()
        hasty.set_desired([DAEMON])  # and look at once
        until(lambda starts=starts: launcher.starts > starts, "another start", patience=20)
    (status,) = hasty.statuses()
    assert (status.restarts, status.failed_starts) == (6, 0)


def test_the_starts_of_a_daemon_that_was_not_healthy_after_them_are_counted(launcher, hasty):
    for starts in range(1, 4):
        until(lambda starts=starts: launcher.starts >= starts, "a start", patience=20)
        launcher.running.clear()
        hasty.set_desired([DAEMON])  # and look at once
    until(lambda: launcher.starts == 4, "the fourth start", patience=20)
    assert hasty.statuses()[0].failed_starts == 3
    launcher.listening.set()
    until(lambda: state_of(hasty) is DaemonState.HEALTHY, "it to be healthy", patience=20)
    assert hasty.statuses()[0].failed_starts == 0
