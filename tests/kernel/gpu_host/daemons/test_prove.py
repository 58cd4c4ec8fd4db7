# SPDX-License-Identifier: Apache-2.0
"""The proof of a GPU host with real units of systemd, in front of the fake CUDA driver."""

from __future__ import annotations

import os

import pytest

import gsaas.conf
from gsaas.prove import limits, place, verdicts
from gsaas.prove.facts import Facts, cpu_devices
from gsaas.prove.jobs import Proof
from gsaas.prove.place import Unusable
from gsaas.remoting import base
from gsaas.remoting.ggml import Ggml
from tests.kernel.devstack.machine import REPOSITORY
from tests.kernel.gpu_host.daemons.host import FAKE, GpuHost, free_port
from tests.support import ggml
from tests.support.cuda import driver
from tests.support.gpu_machine import SOURCE
from tests.support.waiting import until

pytestmark = pytest.mark.kernel

LIBRARY = "/opt/cuda"


@pytest.fixture
def units(host: GpuHost, monkeypatch) -> place.Units:
    driver.build(host.folder)
    # A unit sees nothing of /var/tmp.
    host.machine.type(f"mkdir -p {LIBRARY}; cp {host.folder}/{driver.NAME} {LIBRARY}")
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", host.machine.bus)
    conf = gsaas.conf.load(files=[])
    for option, value in {
        "folder": "/opt",
        "command": f"/usr/bin/python3 -ES {FAKE} {{port}} {{gpu_uuid}}",
        "health": "simulated",
        "memory_limit": "library",
        "limit_library": str(host.folder / driver.NAME),
        "own_devices": False,
        "environment": {"LD_LIBRARY_PATH": LIBRARY},
    }.items():
        conf.set_override(option, value, group="daemons")
    settings = base.load("rcuda", conf).daemon_settings
    monkeypatch.setattr(place, "JOURNAL", host.machine.journal)
    return place.Units(conf, settings, "127.0.0.1")


def loaded(host: GpuHost) -> str:
    """Return what systemd lists of units of proofs."""
    return host.machine.type(
        f"systemctl list-units --all --plain --no-legend '{place.PREFIX}*'"
    ).stdout.strip()


def test_the_program_runs_with_the_walls_and_the_limit_of_a_daemon(units, host):
    daemon = units.daemon(driver.FIRST, free_port(), 256)
    ran = units.start(daemon, ["compute"]).result()
    assert ran.result is not None, ran.problem
    assert ran.result["failed"] == []
    over = units.start(daemon, ["exceed", "256"]).result()
    (line, _) = verdicts.limited(256, over, verdicts.Ran({"rounds": 1}), way="library")
    assert line.verdict == "ok", over
    seen = units.start(daemon, ["look"]).result().result
    assert seen["user"] != 0
    assert seen["cuda"] == [driver.FIRST]
    # It sees the host's /dev, but its control group may open NVIDIA's devices only, which the stand-ins are not.
    assert seen["openable"] == {"nvidia0": False, "nvidia1": False}


def test_a_daemon_answers_and_is_killed_with_all_that_it_started(units, host):
    daemon = units.daemon(driver.FIRST, free_port(), None)
    job = units.start(daemon, None)
    seconds, version = units.check(daemon, job, 30)
    assert (seconds < 30, version) == (True, None)
    job.kill()
    assert not job.lives()
    assert host.processes() == set()


def test_why_a_daemon_could_not_even_begin_is_told(units, host):
    host.machine.type("chmod 0700 /opt")
    daemon = units.daemon(driver.FIRST, free_port(), None)
    job = units.start(daemon, None)
    with pytest.raises(place.Unusable, match=r"(?s)the daemon ended: .*CHDIR"):
        units.check(daemon, job, 30)
    host.machine.type("chmod 0755 /opt")


def test_programs_at_one_port_follow_each_other_at_once(units, host):
    daemon = units.daemon(driver.FIRST, free_port(), None)
    for _ in range(5):
        ran = units.start(daemon, ["look"]).result()
        assert ran.result is not None, ran.problem


def test_two_programs_cannot_run_at_one_port(units, host, monkeypatch):
    monkeypatch.setattr(place, "GRACE", 0.5)
    daemon = units.daemon(driver.FIRST, free_port(), None)
    job = units.start(daemon, None)
    with pytest.raises(place.Unusable, match=f"of another program at port {daemon.port}"):
        units.start(daemon, ["look"])
    assert job.lives()
    job.kill()


def test_a_limit_that_would_have_no_effect_starts_nothing(units, host):
    (host.folder / driver.NAME).unlink()
    with pytest.raises(Unusable, match="would have no effect"):
        units.start(units.daemon(driver.FIRST, free_port(), 256), ["compute"])
    assert loaded(host) == ""


def test_nothing_of_a_program_that_failed_is_left(units, host):
    daemon = units.daemon(driver.FIRST, free_port(), None)
    assert units.start(daemon, ["exceed", "no number"]).result().problem
    until(lambda: loaded(host) == "")
    assert host.machine.units() == []


def test_units_keep_a_daemon_of_a_cpu_device_and_its_tenants_code_to_their_share(host, monkeypatch):
    """What programs get through ggml's own server; what all processes of a daemon get together, control groups say."""
    libraries = ggml.built() / "ggml/lib"
    served = f"{SOURCE}/{libraries.relative_to(REPOSITORY)}"
    conf = gsaas.conf.load(files=[])
    for group, option, value in (
        ("monitor", "source", "cpu"),
        ("monitor", "cpu_device_cores", 1),
        ("monitor", "cpu_device_memory_mb", 1024),
        ("remoting", "library_path", str(libraries)),
        (
            *("daemons", "command"),
            f"/usr/bin/python3 -IB {SOURCE}/gsaas/gpu_host/servers/ggml.py --libraries {served} --threads 1 "
            "--host {address} --port {port}",
        ),
        ("daemons", "folder", "/opt"),
    ):
        conf.set_override(option, value, group=group)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", host.machine.bus)
    monkeypatch.setattr(place, "JOURNAL", host.machine.journal)
    middleware = base.load("ggml", conf)
    settings = middleware.daemon_settings
    where = place.Units(conf, settings, "127.0.0.1")
    facts = Facts(None, cpu_devices(conf))
    proof = Proof(facts, where, middleware, "none", 256, 240.0, dict(os.environ), None)
    process, group, neighbour = limits.lines(proof)
    assert (process.verdict, process.values["way"]) == ("ok", "LimitDATA"), process
    assert process.values["got_mb"] <= 256 + Ggml.daemon_template.own_memory_mb
    assert process.values["sees"] == "out of memory"
    assert neighbour.verdict == "ok", neighbour
    controllers = host.machine.type("cat /sys/fs/cgroup/cgroup.controllers").stdout.split()
    assert group.values["way"] == "MemoryMax"
    if "memory" in controllers:
        assert (group.verdict, group.values["sees"]) == ("ok", "the end of its connection"), group
    else:
        assert (group.verdict, group.values["sees"]) == ("fail", "no limit"), group
    until(lambda: loaded(host) == "")
