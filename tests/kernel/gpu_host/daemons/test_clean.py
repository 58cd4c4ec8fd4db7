# SPDX-License-Identifier: Apache-2.0
"""`gsaas-monitor --clean`: every daemon that was ever started ends, and only then."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gsaas.objects.daemon import DaemonState
from tests.kernel.gpu_host.daemons.host import FAKE, await_state, lease_daemon

pytestmark = pytest.mark.kernel

INVENTORY = """\
gpu_network = "127.0.0.0/8"
[[hosts]]
name = "gpu1"
gpu_address = "127.0.0.1"
gpus = 1
"""


@pytest.fixture
def clean(host):
    (host.folder / "inventory.toml").write_text(INVENTORY)
    config = f"""\
[DEFAULT]
host = gpu1
[remoting]
driver = rcuda
[monitor]
source = {{source}}
gpu_address = 127.0.0.1
inventory = {host.folder}/inventory.toml
[daemons]
life = per-lease
command = {sys.executable} -ES {FAKE} {{{{port}}}} {{{{gpu_uuid}}}}
state_dir = {host.folder}/state
log_dir = {host.folder}/logs
stop_timeout = 0.5
own_devices = false
memory_limit = none
fence = false
"""

    def run(source: str = "declared") -> subprocess.CompletedProcess:
        (host.folder / "gsaas.conf").write_text(config.format(source=source))
        command = [sys.executable, "-m", "gsaas.cli.monitor", "--clean"]
        return subprocess.run(
            [*command, "--config-file", f"{host.folder}/gsaas.conf"],
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def test_clean_waits_for_the_monitor_to_be_stopped_and_then_ends_everything(host, clean):
    supervisor = host.supervise("fork", "escape", "deaf")
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    refused = clean()
    assert refused.returncode == 1
    assert "another monitor uses" in refused.stderr
    assert host.processes() != set()
    host.abandon(supervisor)
    done = clean()
    assert done.returncode == 0, done.stderr
    assert host.processes() == set()
    assert host.tracker.list_keys() == []


def test_clean_needs_no_driver(host, clean):
    supervisor = host.supervise()
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    host.abandon(supervisor)
    done = clean(source="nvml")
    assert done.returncode == 0, done.stderr
    assert host.processes() == set()
