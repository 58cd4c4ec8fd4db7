# SPDX-License-Identifier: Apache-2.0
"""Daemons are started once, recognised again, started anew when changed, and ended for good."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.openstack.bed import processes, settings
from tests.openstack.bed.errors import BedError
from tests.openstack.bed.processes import Daemon

SLEEP = "import time; time.sleep(600)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('ready', flush=True); time.sleep(600)"
)


@pytest.fixture(autouse=True)
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A bed of its own, whose processes are ended."""
    monkeypatch.setattr(settings, "DIR", tmp_path)
    for name in ("RUN", "LOG", "STATE"):
        directory = tmp_path / name.lower()
        directory.mkdir()
        monkeypatch.setattr(settings, name, directory)
    yield tmp_path
    processes.end(processes.marked())


def python(name: str, code: str, ready: str = "", **more: object) -> Daemon:
    says = processes.log_says(name, ready) if ready else lambda: True
    return Daemon(name=name, command=(sys.executable, "-c", code), ready=says, **more)


def test_a_daemon_that_runs_is_not_started_again():
    daemon = python("sleeper", SLEEP)
    assert processes.ensure(daemon) is True
    first = processes.running("sleeper")
    assert processes.ensure(daemon) is False
    assert processes.running("sleeper") == first


def test_a_daemon_whose_configuration_changed_is_started_anew(bed: Path):
    configuration = bed / "daemon.conf"
    configuration.write_text("one")
    daemon = python("sleeper", SLEEP, reads=(configuration,))
    processes.ensure(daemon)
    first = processes.running("sleeper")
    configuration.write_text("two")
    assert processes.ensure(daemon) is True
    second = processes.running("sleeper")
    assert second.pid != first.pid
    # A process that begins has no environment for a moment.
    processes.wait_until(lambda: processes.marked() == [second.pid], 60, "one sleeper runs")


def test_what_a_daemon_starts_is_marked_as_it_is():
    processes.ensure(python("parent", PARENT))
    record = processes.running("parent")
    processes.wait_until(lambda: len(processes.marked()) == 2, 60, "the child runs")
    assert {record.pid, *processes.descendants([record.pid])} == set(processes.marked())


def test_nothing_of_somebody_else_is_marked():
    with subprocess.Popen([sys.executable, "-c", SLEEP]) as other:
        assert other.pid not in processes.marked()
        other.kill()


def test_a_process_that_will_not_end_is_killed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processes, "STOP_PATIENCE", 1)
    processes.ensure(python("stubborn", STUBBORN, ready="ready"))
    record = processes.running("stubborn")
    processes.end([record.pid])
    assert processes.running("stubborn") is None


def test_a_pid_that_went_to_somebody_else_is_not_taken_for_the_daemon():
    processes.ensure(python("sleeper", SLEEP))
    path = settings.RUN / "sleeper.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"pid": os.getppid()}))
    assert processes.running("sleeper") is None


def test_a_daemon_that_ends_at_once_is_an_error_with_its_last_words():
    daemon = python("short", "raise SystemExit('no such table')", ready="never said")
    with pytest.raises(BedError, match="no such table"):
        processes.ensure(daemon)
