# SPDX-License-Identifier: Apache-2.0
"""Jobs of a proof as plain processes, and what systemd is told of those that are units."""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys

import pytest

import gsaas.conf
from gsaas.gpu_host.daemons import supervision, unit
from gsaas.gpu_host.daemons.unit import Confinement
from gsaas.prove import place
from gsaas.prove.place import Unusable
from gsaas.remoting import base

MANY = 1 << 20
"""Bytes; a pipe of Linux takes 64 KiB until somebody reads it."""


@pytest.fixture
def begun():
    """Start a Python program as a job, and end it after the test."""
    jobs = []

    def begin(text: str) -> place.Process:
        jobs.append(place.begin([sys.executable, "-c", text], dict(os.environ)))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.kill()


def test_a_job_whose_output_nobody_reads_does_not_stop(begun):
    job = begun(f"print('x' * {MANY}); print('{{\"rounds\": 3}}')")
    assert job.result(30).result == {"rounds": 3}
    assert len(job.output()) > MANY


def test_output_is_kept_in_order_while_it_is_read(begun):
    job = begun("import time\nfor i in range(50): print(i, flush=True); time.sleep(0.002)")
    assert job.await_output("49\n")
    assert job.output().split() == [str(number) for number in range(50)]


def test_a_job_that_prints_nothing_is_not_waited_for_without_end(begun):
    job = begun("import time; time.sleep(600)")
    assert not job.await_output("computing", 0.1)
    assert not job.ended_within(0.1)
    assert job.lives()


def test_a_killed_job_has_ended_and_what_it_printed_is_known(begun):
    job = begun("import time; print('computing', flush=True); time.sleep(600)")
    assert job.await_output("computing\n")
    job.kill()
    job.kill()
    assert not job.lives()
    assert job.output() == "computing\n"


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_asked_to_end_before_it_is_killed(tmp_path):
    note = tmp_path / "note"
    script = f"trap 'echo given back >{note}; exit 1' TERM; sleep 600 & wait"
    with pytest.raises(subprocess.TimeoutExpired):
        # timeout(1) passes the signal on to all that it started.
        place.ended(["timeout", "600", "sh", "-c", script], timeout=2.0)
    assert note.read_text() == "given back\n"


def test_a_command_that_was_ended_by_its_own_limit_is_told():
    ran = place.run([], {}, ["timeout", "0.1", "sleep", "600"])
    assert ran.problem == "it did not end in time"


def test_a_program_that_is_not_there_is_named():
    with pytest.raises(Unusable, match="/nonexistent/daemon cannot be run: No such file"):
        place.begin(["/nonexistent/daemon"], {})


class Recorded:
    """Stands for systemd, and keeps the properties of each unit that it was to start."""

    def __init__(self) -> None:
        self.units: dict[str, dict[str, object]] = {}

    def start_transient(self, name: str, properties: list, _needed: list) -> None:
        self.units[name] = {key: value for key, (_, value) in properties}


@pytest.fixture
def systemd() -> Recorded:
    return Recorded()


@pytest.fixture
def units(systemd) -> place.Units:
    """The place of units, in front of a systemd that only records."""
    conf = gsaas.conf.load(files=[])
    conf.set_override("own_devices", False, group="daemons")
    settings = base.load("rcuda", conf).daemon_settings
    made = object.__new__(place.Units)
    place.Place.__init__(made, settings, "127.0.0.1")
    made.systemd = systemd
    made._confinement = Confinement((), 1024, 100, 2.5)
    made._devices = supervision.devices(conf, settings, "host", lambda _: None)
    return made


def test_no_monitor_takes_a_unit_of_a_proof_for_a_daemon(units, systemd):
    units.start(units.daemon("GPU-0", 20000, None), ["compute"])
    (name,) = systemd.units
    assert not fnmatch.fnmatch(name, unit.name("*"))


def test_two_units_of_one_proof_have_two_names(units, systemd):
    daemon = units.daemon("GPU-0", 20000, None)
    units.start(daemon, None)
    units.start(daemon, ["compute"])
    assert len(systemd.units) == 2


def test_a_unit_that_failed_is_forgotten_and_one_that_was_left_behind_ends(units, systemd):
    units.start(units.daemon("GPU-0", 20000, None), None)
    (properties,) = systemd.units.values()
    assert properties["CollectMode"] == "inactive-or-failed"
    assert properties["RuntimeMaxUSec"] == 900_000_000
