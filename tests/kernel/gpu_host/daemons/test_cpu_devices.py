# SPDX-License-Identifier: Apache-2.0
"""CPU devices as the shipped unit of the monitor offers them: their daemons are units of systemd, and compute.

The monitor runs in a machine with systemd as an ordinary user. The test is its engine, over a real message bus. What
keeps a daemon to its device depends on the control groups of the machine: each test of a limit names it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from gsaas.gpu_host.daemons import unit
from gsaas.objects.daemon import Admission
from gsaas.remoting.ggml import Ggml
from tests.support import cpu_host, ggml
from tests.support.cpu_host import SHARE, CpuHost, right
from tests.support.gpu_machine import SOURCE, GpuMachine
from tests.support.rabbitmq import RabbitMQ
from tests.support.waiting import until

pytestmark = pytest.mark.kernel

CORES = sorted(os.sched_getaffinity(0))
DEVICES = 2
EACH = len(CORES) // DEVICES
"""Cores of each device."""
MEMORY = (SHARE + Ggml.daemon_template.own_memory_mb) << 20
"""Bytes that its daemon may have."""
FIRST_PORT = 20000
CONFIGURATION = """\
[DEFAULT]
transport_url = {bus}
[monitor]
source = cpu
cpu_devices = {devices}
cpu_device_memory_mb = 1024
monitor_interval = 1
[remoting]
driver = ggml
[daemons]
folder = /opt
command = /usr/bin/python3 {server} --libraries {libraries} --threads 1 --host {{address}} --port {{port}}
health = listens
"""


@pytest.fixture(scope="module")
def running(machine: GpuMachine) -> Iterator[CpuHost]:
    libraries = ggml.built().relative_to(ggml.REPOSITORY)
    if len(CORES) < DEVICES:
        pytest.skip(f"{DEVICES} devices need as many processors")
    with (
        machine.network(),
        RabbitMQ() as broker,
        cpu_host.engine_of(machine, "gpu1", broker.url) as host,
    ):
        machine.configure(
            CONFIGURATION.format(
                bus=broker.url,
                devices=DEVICES,
                server=f"{SOURCE}/gsaas/gpu_host/servers/ggml.py",
                libraries=f"{SOURCE}/{libraries}/ggml/lib",
            )
        )
        machine.type("systemctl start gsaas-monitor")
        try:
            host.await_report()
            yield host
        finally:
            machine.type(
                "systemctl stop gsaas-monitor; /opt/gsaas/bin/gsaas-monitor "
                "--config-file /etc/gsaas/gsaas-monitor.conf --clean"
            )
    assert machine.units() == []


@pytest.fixture
def site(running: CpuHost) -> Iterator[CpuHost]:
    yield running
    running.reset()


def test_a_program_computes_on_two_devices_whose_daemons_systemd_has_started(site):
    lease = site.lease(FIRST_PORT)
    site.have(*lease)
    assert right(site.results(site.run(lease, "--rounds=50")))
    assert site.machine.show("gsaas-monitor", "User") == "gsaas-monitor"
    assert site.machine.show("gsaas-monitor", "ProtectSystem") == "strict"


def test_the_fence_admits_nobody_who_was_not_admitted(site):
    lease = site.lease(FIRST_PORT)
    site.tell(frozenset(lease), frozenset([Admission("127.0.0.1", FIRST_PORT)]))
    assert site.machine.answer(FIRST_PORT + 1) == "ConnectionRefusedError"
    assert right(site.results(site.run(lease[:1], "--rounds=3")), 1)


def test_a_unit_has_the_cores_and_the_memory_of_its_device_and_share(site):
    lease = site.lease(FIRST_PORT)
    site.have(*lease)
    for number, daemon in enumerate(lease):
        cores = CORES[number * EACH : (number + 1) * EACH]
        name = unit.name(daemon.key)
        expected = {
            "LimitDATA": str(MEMORY),
            "MemoryMax": str(MEMORY),
            "MemorySwapMax": "0",
            "CPUQuotaPerSecUSec": f"{EACH}s",
        }
        assert {field: site.machine.show(name, field) for field in expected} == expected
        for field in ("AllowedCPUs", "CPUAffinity"):
            assert numbers(site.machine.show(name, field)) == cores
        # What the kernel has of it wherever systemd runs: RLIMIT_DATA, and the affinity.
        pid = site.pid(daemon)
        limit = f"grep '^Max data size' /proc/{pid}/limits"
        assert site.machine.type(limit).stdout.split()[3:5] == [str(MEMORY), str(MEMORY)]
        allowed = site.machine.type(f"grep Cpus_allowed_list /proc/{pid}/status").stdout
        assert numbers(allowed.split()[1]) == cores


def numbers(text: str) -> list[int]:
    """Return the cores that systemd or the kernel lists, such as 0-2,5."""
    ranges = [each.split("-") for each in text.replace(",", " ").split()]
    return [number for each in ranges for number in range(int(each[0]), int(each[-1]) + 1)]


@pytest.mark.parametrize(
    ("controller", "file", "expected"),
    [
        ("memory", "memory.max", str(MEMORY)),
        ("memory", "memory.swap.max", "0"),
        ("cpu", "cpu.max", f"{EACH * 100_000} 100000"),
        (
            "cpuset",
            "cpuset.cpus.effective",
            f"{CORES[0]}" if EACH == 1 else f"{CORES[0]}-{CORES[EACH - 1]}",
        ),
    ],
)
def test_the_control_group_has_it_where_there_is_such_a_controller(
    site, controller, file, expected
):
    lease = site.lease(FIRST_PORT, 1)
    site.have(*lease)
    group = f"/sys/fs/cgroup{site.machine.show(unit.name(lease[0].key), 'ControlGroup')}"
    if controller not in site.machine.type(f"cat {group}/cgroup.controllers").stdout.split():
        pytest.skip(f"control groups of version 2 have no controller {controller} here")
    assert site.machine.type(f"cat {group}/{file}").stdout.strip() == expected


def test_rlimit_data_keeps_a_program_to_its_share_while_its_neighbour_computes(site):
    lease, neighbour = site.lease(FIRST_PORT, 1), site.lease(FIRST_PORT + 10, 1)
    site.have(*lease, *neighbour)
    other = site.run(neighbour, "--endless")
    assert other.stdout.readline() == "computing\n"
    (greedy,) = site.results(site.run(lease, "--allocate"))
    assert greedy["error"]
    assert 0 < greedy["allocated_mb"] <= MEMORY >> 20
    assert other.poll() is None
    until(lambda: right(site.results(site.run(lease, "--rounds=3")), 1), "its device to compute")


def test_the_readings_are_what_the_kernel_counts_of_the_units(site):
    lease = site.lease(FIRST_PORT, 1)
    site.have(*lease)
    mine, other = site.devices

    def reading(device: str, name: str) -> float:
        assert site.engine.report is not None
        return getattr(site.engine.report.snapshot.readings[device], name) or 0

    program = site.run(lease, "--endless")
    assert program.stdout.readline() == "computing\n"
    until(lambda: reading(mine, "utilisation") > 0, "the device to be busy")
    assert 0 < reading(mine, "used_mb") <= MEMORY >> 20
    assert (reading(other, "utilisation"), reading(other, "used_mb")) == (0, 0)
    os.killpg(program.pid, signal.SIGKILL)
    until(lambda: reading(mine, "utilisation") == 0, "the device to be idle")
