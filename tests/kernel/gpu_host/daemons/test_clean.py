# SPDX-License-Identifier: Apache-2.0
"""`gsaas-monitor --clean`: every daemon that was ever started ends, and only then."""

from __future__ import annotations

import subprocess

import pytest

from gsaas.objects.daemon import DaemonState
from tests.kernel.gpu_host.daemons.host import await_state, lease_daemon

pytestmark = pytest.mark.kernel

CLEAN = "/opt/gsaas/bin/gsaas-monitor --config-file /etc/gsaas/gsaas-monitor.conf --clean"


@pytest.fixture
def clean(machine):
    machine.configure("fence = false\n")

    def run() -> subprocess.CompletedProcess:
        return machine.type(CLEAN, check=False)

    return run


def test_clean_waits_for_the_monitor_to_be_stopped_and_then_ends_everything(host, clean):
    supervisor = host.supervise("fork", "escape", "deaf")
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    locked = "flock --exclusive /run/gsaas-monitor"
    refused = host.machine.type(f"mkdir -p /run/gsaas-monitor; {locked} {CLEAN}", check=False)
    assert refused.returncode == 1
    assert "another monitor uses /run/gsaas-monitor" in refused.stderr
    assert host.processes() != set()
    host.abandon(supervisor)
    done = clean()
    assert done.returncode == 0, done.stderr
    assert host.processes() == set()
    assert host.machine.units() == []


def test_clean_ends_units_of_another_release_too(host, clean):
    """They obey no SIGTERM, and their description cannot be read."""
    host.machine.type(
        "systemd-run --unit=gsaas-daemon-stranger -p TimeoutStopSec=infinity "
        "sh -c 'trap \"\" TERM; while :; do sleep 1; done'"
    )
    done = clean()
    assert done.returncode == 0, done.stderr
    assert host.machine.units() == []


def test_clean_needs_no_driver(host, clean):
    host.machine.type("sed -i s/declared/nvml/ /etc/gsaas/gsaas-monitor.conf")
    supervisor = host.supervise()
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    host.abandon(supervisor)
    done = clean()
    assert done.returncode == 0, done.stderr
    assert host.processes() == set()


def test_without_systemd_it_says_so(host, clean):
    done = host.machine.type(f"DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nowhere {CLEAN}", check=False)
    assert done.returncode == 1
    assert "systemd does not answer over D-Bus" in done.stderr
