# SPDX-License-Identifier: Apache-2.0
"""Devices that are parts of a host's processors and memory: how it is divided, and what is read of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

import gsaas.conf
from gsaas.gpu_host import sources
from gsaas.gpu_host.cpu_meter import CpuMeter
from gsaas.gpu_host.daemons import usage
from gsaas.gpu_host.sources.base import SourceUnavailable
from gsaas.gpu_host.sources.cpu import cores_of
from gsaas.objects.daemon import Daemon, DaemonUsage
from gsaas.objects.device_kinds import CPU, kind_of
from tests.support.waiting import until

PORTS = range(50052, 65536)


@pytest.fixture
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {*range(2, 18)})


@pytest.fixture
def configured(tmp_path) -> Callable[..., cfg.ConfigOpts]:
    def configured(**settings: object) -> cfg.ConfigOpts:
        chosen = {"source": "cpu", "cpu_device_memory_mb": 64, **settings}
        lines = [f"{name} = {value}" for name, value in chosen.items() if value is not None]
        file = tmp_path / "gsaas-monitor.conf"
        file.write_text("\n".join(["[monitor]", *lines]))
        return gsaas.conf.load(files=[str(file)])

    return configured


@pytest.mark.usefixtures("sixteen_cores")
def test_cores_are_divided_and_no_two_devices_have_the_same(configured):
    assert list(cores_of(configured(cpu_devices=2), "h").values()) == [
        tuple(range(2, 10)),
        tuple(range(10, 18)),
    ]
    some = cores_of(configured(cpu_devices=3, cpu_device_cores=4), "h").values()
    assert list(some) == [(2, 3, 4, 5), (6, 7, 8, 9), (10, 11, 12, 13)]


@pytest.mark.usefixtures("sixteen_cores")
@pytest.mark.parametrize(
    "settings", [{"cpu_devices": 17}, {"cpu_devices": 2, "cpu_device_cores": 9}]
)
def test_a_host_has_no_more_cores_than_it_has(configured, settings):
    with pytest.raises(
        SourceUnavailable, match=r"more than the 16 cores of this host.*cpu_devices"
    ):
        cores_of(configured(**settings), "h")


@pytest.mark.usefixtures("sixteen_cores")
def test_devices_have_names_that_stay_their_cores_and_their_memory(configured):
    conf = configured(cpu_devices=2)
    snapshot = sources.load(conf, "host-1", PORTS).snapshot()
    assert [(gpu.device_index, gpu.memory_mb, gpu.daemon_port) for gpu in snapshot.gpus] == [
        (0, 64, 50052),
        (1, 64, 50053),
    ]
    assert {gpu.model for gpu in snapshot.gpus} == {"CPU, 8 cores"}
    uuids = [gpu.uuid for gpu in snapshot.gpus]
    assert {kind_of(each) for each in uuids} == {CPU}
    assert snapshot.cores == dict.fromkeys(uuids, 8)
    assert [gpu.uuid for gpu in sources.load(conf, "host-1", PORTS).snapshot().gpus] == uuids
    assert not {gpu.uuid for gpu in sources.load(conf, "host-2", PORTS).snapshot().gpus} & {*uuids}


@pytest.mark.usefixtures("sixteen_cores")
def test_more_memory_than_the_host_has_or_none_is_refused(configured):
    with pytest.raises(SourceUnavailable, match=r"need more than the \d+ MiB of this host"):
        sources.load(configured(cpu_devices=2, cpu_device_memory_mb=1 << 40), "h", PORTS)
    with pytest.raises(SourceUnavailable, match="set cpu_device_memory_mb"):
        sources.load(configured(cpu_device_memory_mb=None), "h", PORTS)


ONE, TWO = Daemon("CPU-a", 20000, 512, "lease-1", 0), Daemon("CPU-a", 20001, 512, "lease-2", 1)
CORES = {"CPU-a": 4, "CPU-b": 4}


def test_a_device_is_as_busy_as_its_daemons_keep_its_cores():
    meter = CpuMeter()
    meter.read({ONE: DaemonUsage(100.0, 300), TWO: DaemonUsage(0.0, 20)}, CORES, now=50.0)
    read = meter.read({ONE: DaemonUsage(110.0, 310), TWO: DaemonUsage(5.0, 20)}, CORES, now=60.0)
    assert read.devices["CPU-a"].utilisation == pytest.approx(37.5)
    assert read.devices["CPU-a"].used_mb == 330
    assert read.devices["CPU-b"].utilisation == 0
    assert {
        (load.lease_id, load.position, load.utilisation, load.used_mb) for load in read.loads
    } == {
        ("lease-1", 0, 25.0, 310),
        ("lease-2", 1, 12.5, 20),
    }


def test_nobody_is_called_idle_before_it_is_known():
    read = CpuMeter().read({ONE: DaemonUsage(100.0, 300)}, CORES, now=50.0)
    assert read.devices["CPU-a"].utilisation is None
    assert [load.utilisation for load in read.loads] == [None]


def test_a_daemon_that_was_started_anew_is_not_counted_backwards():
    meter = CpuMeter()
    meter.read({ONE: DaemonUsage(100.0, 300)}, CORES, now=50.0)
    read = meter.read({ONE: DaemonUsage(2.0, 300)}, CORES, now=60.0)
    assert read.devices["CPU-a"].utilisation == pytest.approx(5.0)


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process whose child computes and has 64 MiB."""
    child = "x = bytearray(b'x' * (64 << 20)); print('ready', flush=True)\nwhile True: pass"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        os.killpg(process.pid, 9)


def test_what_processes_below_the_first_one_use_counts(parent):
    until(lambda: usage.of_processes(parent.pid).cpu_seconds > 0.2, "the child's time to be seen")
    assert usage.of_processes(parent.pid).memory_mb >= 64
    assert usage.of_processes(1 << 22) is None


def test_a_control_group_tells_what_its_processes_have_used(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "CONTROL_GROUPS", tmp_path)
    (tmp_path / "a.slice/b.service").mkdir(parents=True)
    (tmp_path / "a.slice/b.service/cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (tmp_path / "a.slice/b.service/memory.current").write_text("104857600\n")
    assert usage.of_control_group("/a.slice/b.service") == DaemonUsage(2.5, 100)
    assert usage.of_control_group("/a.slice/gone.service") is None


def test_without_the_controller_of_memory_the_memory_of_its_processes_counts(
    tmp_path, monkeypatch, parent
):
    monkeypatch.setattr(usage, "CONTROL_GROUPS", tmp_path)
    (tmp_path / "b.service").mkdir()
    (tmp_path / "b.service/cpu.stat").write_text("usage_usec 2500000\n")
    (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    (tmp_path / "b.service/cgroup.procs").write_text(f"{parent.pid}\n{child}\n{1 << 22}\n")
    found = usage.of_control_group("/b.service")
    assert found.cpu_seconds == 2.5
    assert 64 <= found.memory_mb < 256
