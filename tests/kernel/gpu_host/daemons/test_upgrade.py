# SPDX-License-Identifier: Apache-2.0
"""Daemons that a monitor of another release started, whose units have other properties or another description."""

from __future__ import annotations

import pytest

from gsaas.gpu_host.daemons import unit
from gsaas.gpu_host.daemons.plan import DaemonTimeouts
from gsaas.gpu_host.daemons.systemd import Systemd
from gsaas.objects.daemon import Daemon, DaemonState
from gsaas.remoting.daemon import DaemonCommand
from tests.kernel.gpu_host.daemons.host import (
    FAKE,
    GpuHost,
    await_detail,
    await_state,
    lease_daemon,
    listens,
    status_of,
)
from tests.support.waiting import until

pytestmark = pytest.mark.kernel

NEW = {"Description", "TasksMax", "Requires", "After"}


def start_as_another_release(
    host: GpuHost, daemon: Daemon, description: str, *behaviours: str
) -> set[int]:
    """Start a daemon with fewer tasks, and without temporary files of its own; return its PIDs."""
    command = DaemonCommand(
        ("/usr/bin/python3", "-ES", FAKE, str(daemon.port), daemon.gpu_uuid, *behaviours),
        {},
        "/opt",
    )
    confinement = unit.Confinement(("/etc/gsaas",), 1024, 256, 60.0)
    properties = [
        each
        for each in unit.properties(daemon, 0, command, None, confinement)
        if each[0] not in NEW and unit.TEMPORARY not in repr(each[1])
    ]
    properties += [("Description", ("s", description)), ("TasksMax", ("t", 100))]
    systemd = Systemd(host.machine.bus)
    systemd.start_transient(unit.name(daemon.key), properties)
    systemd.close()
    # Before that it would not be deaf.
    until(lambda: listens(daemon.port), "the daemon of the other release")
    return host.pids(daemon)


def test_a_daemon_of_another_release_runs_on_and_gets_this_releases_walls_when_it_starts_again(
    host,
):
    daemon = lease_daemon()
    description = f"{unit.describe(daemon, 2)} fact-of-then=1"
    before = start_as_another_release(host, daemon, description)
    supervisor = host.supervise()
    supervisor.set_desired([daemon])
    assert await_state(supervisor, daemon, DaemonState.HEALTHY).restarts == 2
    name = unit.name(daemon.key)
    assert (host.pids(daemon), host.machine.show(name, "TasksMax")) == (before, "100")

    host.machine.type(f"kill -KILL {host.main_pid(daemon)}")
    until(lambda: status_of(supervisor, daemon).restarts == 3, "the next start")
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    assert host.machine.show(name, "TasksMax") == "256"
    assert host.pids(daemon) == host.processes()


def test_a_daemon_whose_description_this_release_cannot_read_ends_before_another_one_starts(host):
    """Its lease cannot be known, so neither can be whether anybody may use it."""
    daemon = lease_daemon()
    before = start_as_another_release(host, daemon, "GSaaS daemon, written otherwise", "deaf")
    supervisor = host.supervise(timeouts=DaemonTimeouts(stop=5.0, first_pause=0.1))
    supervisor.set_desired([daemon])
    await_detail(supervisor, daemon, "this release cannot read its description")
    assert status_of(supervisor, daemon).state is DaemonState.STARTING
    assert unit.name(daemon.key) in supervisor.problems()[0]
    assert host.processes() == before, "no second one is started beside it"
    status = await_state(supervisor, daemon, DaemonState.HEALTHY)
    assert status.restarts == 0
    assert host.pids(daemon) == host.processes()
    assert not host.processes() & before
    assert supervisor.problems() == []
