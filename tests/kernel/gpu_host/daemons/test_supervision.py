# SPDX-License-Identifier: Apache-2.0
"""Daemons as processes: started, watched, started again, ended with everything they left behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gsaas.gpu_host.daemons import unit
from gsaas.gpu_host.daemons.plan import DaemonTimeouts
from gsaas.objects.daemon import DaemonState
from tests.kernel.gpu_host.daemons.host import (
    TIMEOUTS,
    answer_of,
    await_detail,
    await_state,
    lease_daemon,
    listens,
    status_of,
)
from tests.support.waiting import until

pytestmark = pytest.mark.kernel


def test_a_wanted_daemon_serves_and_one_that_is_not_wanted_any_more_leaves_nothing(host):
    supervisor = host.supervise()
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    assert "GPU-1" in answer_of(daemon.port)
    supervisor.set_desired([])
    await_state(supervisor, daemon, None)
    assert not listens(daemon.port)
    assert host.processes() == set()
    assert host.machine.units() == []


def test_children_that_outlive_their_parent_end_with_the_lease(host):
    supervisor = host.supervise("fork", "escape", "deaf")
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    assert len(until(lambda: len(host.processes()) == 3 and host.processes())) == 3
    supervisor.set_desired([])
    await_state(supervisor, daemon, None)
    assert host.processes() == set()
    assert not listens(daemon.port)


def test_a_crash_is_noticed_and_only_that_daemon_starts_again(host):
    supervisor = host.supervise("fork")
    mine, other = lease_daemon(), lease_daemon()
    supervisor.set_desired([mine, other])
    for daemon in (mine, other):
        await_state(supervisor, daemon, DaemonState.HEALTHY)
    before = host.pids(other)
    first = host.pids(mine)
    host.machine.type(
        f"kill -KILL {host.main_pid(mine)}"
    )  # its child serves on, as a LUPINE server's would
    until(lambda: getattr(status_of(supervisor, mine), "restarts", 0) == 1, "the second start")
    await_state(supervisor, mine, DaemonState.HEALTHY)
    assert not first & host.pids(mine)
    assert host.pids(other) == before
    assert status_of(supervisor, other).restarts == 0


def test_a_daemon_that_ends_at_once_is_down_and_says_why(host):
    supervisor = host.supervise("fail", timeouts=DaemonTimeouts(first_pause=30.0))
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.DOWN)
    await_detail(supervisor, daemon, "ended with status 3: no licence found")
    supervisor.set_desired([])
    await_state(supervisor, daemon, None)


def test_a_daemon_that_fails_once_gets_another_chance(host):
    supervisor = host.supervise("fail-without=/opt/flag")
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.DOWN)
    host.machine.type("touch /opt/flag")
    assert await_state(supervisor, daemon, DaemonState.HEALTHY).restarts > 0
    host.machine.type("rm /opt/flag")


def test_a_program_that_does_not_exist_is_down_and_says_so(host):
    supervisor = host.supervise(
        command="./no-such-daemon", timeouts=DaemonTimeouts(first_pause=30.0)
    )
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.DOWN)
    await_detail(supervisor, daemon, "its program cannot be executed")


def test_a_folder_that_does_not_exist_is_down_and_says_so(host):
    supervisor = host.supervise(folder="/no/such/folder", timeouts=DaemonTimeouts(first_pause=30.0))
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.DOWN)
    await_detail(supervisor, daemon, "ended with status 200")  # systemd's EXIT_CHDIR


def test_a_daemon_that_never_answers_is_not_handed_out_and_is_started_again(host):
    supervisor = host.supervise("mute", timeouts=DaemonTimeouts(start=0.3, first_pause=30.0))
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    status = await_state(supervisor, daemon, DaemonState.DOWN)
    assert "did not become healthy in 0.3 s" in status.detail


def test_a_port_that_somebody_else_has_is_not_fought_over(host):
    supervisor = host.supervise(timeouts=DaemonTimeouts(first_pause=0.2))
    daemon = lease_daemon()
    with socket.create_server(("127.0.0.1", daemon.port)):
        supervisor.set_desired([daemon])
        status = await_state(supervisor, daemon, DaemonState.DOWN)
        assert status.detail == f"cannot start: another process listens on port {daemon.port}"
    await_state(supervisor, daemon, DaemonState.HEALTHY)


def test_a_port_that_is_still_served_is_not_confirmed_as_free(host):
    """A process outside of the daemon's unit listens there: an operator has to end it."""
    supervisor = host.supervise("fail-without=/opt/flag")
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.DOWN)
    with socket.create_server(("127.0.0.1", daemon.port)):
        supervisor.set_desired([])
        await_detail(supervisor, daemon, "still listens")
        assert status_of(supervisor, daemon).state is DaemonState.DRAINING
    await_state(supervisor, daemon, None)


def test_all_ports_of_a_daemon_are_its_own_also_for_the_next_monitor(host):
    supervisor = host.supervise("another-port")
    daemon = lease_daemon(ports=2)
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    assert [json.loads(answer_of(port))["gpu"] for port in daemon.all_ports] == ["GPU-1"] * 2
    allowed = host.machine.show(unit.name(daemon.key), "SocketBindAllow").strip()
    assert allowed.replace(":", "") == f"tcp{daemon.port}-{daemon.port + 1}"
    groups = until(supervisor.listeners, "its control group")
    assert sorted(groups) == list(daemon.all_ports)
    assert len(set(groups.values())) == 1
    before = host.pids(daemon)
    host.abandon(supervisor)

    second = host.supervise("another-port")
    assert {c.daemon for c in second.statuses()} == {daemon}
    assert second.listeners() == groups
    second.set_desired([daemon])
    assert await_state(second, daemon, DaemonState.HEALTHY).restarts == 0
    assert host.pids(daemon) == before
    second.set_desired([])
    await_state(second, daemon, None)
    assert not any(listens(port) for port in daemon.all_ports)


def test_the_ports_of_a_daemon_are_not_confirmed_as_free_while_one_of_them_is_served(host):
    supervisor = host.supervise("fail-without=/opt/flag")
    daemon = lease_daemon(ports=2)
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.DOWN)
    with socket.create_server(("127.0.0.1", daemon.port + 1)):
        supervisor.set_desired([])
        await_detail(supervisor, daemon, f"still listens on port {daemon.port + 1}")
        assert status_of(supervisor, daemon).state is DaemonState.DRAINING
    await_state(supervisor, daemon, None)


def test_a_monitor_that_was_killed_finds_its_daemons_again_and_leaves_them_alone(host):
    supervisor = host.supervise("fork")
    daemon, gone = lease_daemon(), lease_daemon()
    supervisor.set_desired([daemon, gone])
    for each in (daemon, gone):
        await_state(supervisor, each, DaemonState.HEALTHY)
    before = host.pids(daemon)
    host.abandon(supervisor)

    second = host.supervise("fork")
    assert {c.daemon for c in second.statuses()} == {daemon, gone}
    second.set_desired([daemon])
    await_state(second, gone, None)
    assert host.pids(daemon) == before
    assert await_state(second, daemon, DaemonState.HEALTHY).restarts == 0


def test_until_it_is_told_a_monitor_ends_nothing_but_restarts_what_crashes(host):
    supervisor = host.supervise()
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    host.abandon(supervisor)
    second = host.supervise()
    host.machine.type(f"kill -KILL {host.main_pid(daemon)}")
    until(lambda: getattr(status_of(second, daemon), "restarts", 0) == 1, "the second start")
    await_state(second, daemon, DaemonState.HEALTHY)


def test_a_unit_that_describes_no_daemon_is_a_problem_until_it_has_ended(host):
    """It obeys no SIGTERM, and its unit has no end to waiting."""
    machine = host.machine
    machine.type(
        "systemd-run --unit=gsaas-daemon-stranger -p TimeoutStopSec=infinity "
        "sh -c 'trap \"\" TERM; while :; do sleep 1; done'"
    )
    supervisor = host.supervise(timeouts=DaemonTimeouts(stop=3.0))
    (problem,) = until(supervisor.problems, "the problem")
    assert problem.startswith("unit gsaas-daemon-stranger.service is named like a daemon's")
    until(lambda: machine.units() == [], "the stranger to end")
    until(lambda: supervisor.problems() == [], "the problem to be gone")


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A control group, version 1, whose processes do not run until it is thawed, not even to be killed."""
    with tempfile.TemporaryDirectory() as mount:
        command = ["mount", "-t", "cgroup", "-o", "freezer", "none", mount]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("this kernel has no freezer of version 1")
        folder = Path(mount, f"gsaas-{os.getpid()}")
        try:
            folder.mkdir()
            yield folder
            until(lambda: not (folder / "cgroup.procs").read_text(), "the frozen to be gone")
            folder.rmdir()
        finally:
            subprocess.run(["umount", mount], check=True)


def test_a_process_that_cannot_be_killed_is_told_and_its_lease_is_not_over(host, freezer):
    """As one that waits in the kernel for a device. It is frozen here, which SIGKILL does not end."""
    supervisor = host.supervise()
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    group = host.machine.show(unit.name(daemon.key), "ControlGroup")
    # From here, as the machine numbers its processes otherwise.
    procs = Path("/proc", host.machine.leader, f"root/sys/fs/cgroup{group}/cgroup.procs")
    for pid in procs.read_text().split():
        (freezer / "cgroup.procs").write_text(pid)
    (freezer / "freezer.state").write_text("FROZEN")
    try:
        supervisor.set_desired([])
        await_detail(supervisor, daemon, "one of its processes does not end")
        (problem,) = supervisor.problems()
        assert problem.startswith(f"daemon {daemon.key}: one of its processes does not end")
        assert status_of(supervisor, daemon).state is DaemonState.DRAINING
        assert procs.read_text(), "and this is so"
    finally:
        (freezer / "freezer.state").write_text("THAWED")
    await_state(supervisor, daemon, None)
    assert supervisor.problems() == []


def test_a_daemon_that_ended_while_there_was_no_monitor_is_started_again(host):
    supervisor = host.supervise()
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    host.abandon(supervisor)
    host.machine.type(f"kill -KILL {host.main_pid(daemon)}")
    second = host.supervise()
    until(lambda: getattr(status_of(second, daemon), "restarts", 0) == 1, "the second start")
    await_state(second, daemon, DaemonState.HEALTHY)


def test_the_same_lease_with_other_contents_is_another_daemon(host):
    supervisor = host.supervise()
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    moved = lease_daemon(lease_id=daemon.lease_id, gpu_uuid="GPU-2")
    supervisor.set_desired([moved])
    until(
        lambda: getattr(status_of(supervisor, moved), "daemon", None) == moved, "the other daemon"
    )
    await_state(supervisor, moved, DaemonState.HEALTHY)
    assert "GPU-2" in answer_of(moved.port)
    assert not listens(daemon.port)


def test_the_journal_has_what_a_daemon_printed_and_no_more_than_a_bound_of_it(host):
    supervisor = host.supervise("chatty")
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    read = f"journalctl --quiet --output=cat _SYSTEMD_UNIT={unit.name(daemon.key)} | wc -l"
    kept = until(lambda: int(host.machine.type(read).stdout), "its output")
    assert kept < 2_000, "of 20,000 lines"
    supervisor.set_desired([])
    await_state(supervisor, daemon, None)
    assert int(host.machine.type(read).stdout)  # who looks for the cause of an end reads it then


def test_a_daemon_gets_its_own_environment_and_nothing_of_the_monitors(host, monkeypatch):
    monkeypatch.setenv("OS_PASSWORD", "secret")
    supervisor = host.supervise("look", environment={"EXTRA": "{gpu_uuid}/{memory_mb}"})
    daemon = lease_daemon(memory_mb=512)
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    read = f"journalctl --quiet --output=cat _SYSTEMD_UNIT={unit.name(daemon.key)}"
    told = json.loads(until(lambda: host.machine.type(read).stdout, "what it saw"))
    assert told["environment"]["EXTRA"] == "GPU-1/512"
    assert told["environment"]["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert "OS_PASSWORD" not in told["environment"]
    assert told["folder"] == "/opt"


def test_a_daemon_has_a_bound_of_tasks_and_memory_that_systemd_knows(host):
    supervisor = host.supervise()
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    name = unit.name(daemon.key)
    assert host.machine.show(name, "MemoryMax") == str(1024 << 20)
    assert host.machine.show(name, "MemorySwapMax") == "0"
    assert host.machine.show(name, "TasksMax") == "256"
    assert host.machine.show(name, "Slice") == "gsaas-daemons.slice"


def test_words_with_spaces_quotes_and_dollars_arrive_as_they_are(host):
    supervisor = host.supervise(
        command="printf '%s|' 'a b' \"c'd\" '\"' '$$HOME' '%n' ''",
        timeouts=DaemonTimeouts(first_pause=30.0),
    )
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.DOWN)
    read = f"journalctl --quiet --output=cat _SYSTEMD_UNIT={unit.name(daemon.key)}"
    assert until(lambda: host.machine.type(read).stdout).strip() == "a b|c'd|\"|$HOME|%n||"


def test_while_systemd_cannot_be_asked_daemons_stay_as_they_are(host):
    """D-Bus is started anew."""
    supervisor = host.supervise()
    daemon, gone = lease_daemon(), lease_daemon()
    supervisor.set_desired([daemon, gone])
    for each in (daemon, gone):
        await_state(supervisor, each, DaemonState.HEALTHY)
    before = host.pids(daemon)
    host.machine.type("systemctl stop dbus.socket dbus.service")
    supervisor.set_desired([daemon])
    until(lambda: status_of(supervisor, gone).state is DaemonState.DRAINING)
    host.machine.type("systemctl start dbus.socket dbus.service")
    await_state(supervisor, gone, None)
    assert host.pids(daemon) == before
    assert await_state(supervisor, daemon, DaemonState.HEALTHY).restarts == 0


def test_a_daemon_whose_limit_would_not_hold_is_not_started(host):
    supervisor = host.supervise(
        memory_limit="mps",
        mps_pipe_directory=f"{host.folder}/mps",
        isolation="shared-user",
        timeouts=DaemonTimeouts(first_pause=0.2),
    )
    shared, whole = lease_daemon(memory_mb=512), lease_daemon()
    supervisor.set_desired([shared, whole])
    await_state(supervisor, whole, DaemonState.HEALTHY)
    status = await_state(supervisor, shared, DaemonState.DOWN)
    assert "its limit of 512 MiB would have no effect" in status.detail
    with control_daemon(host.folder / "mps"):
        await_state(supervisor, shared, DaemonState.HEALTHY)


def test_a_daemon_is_ended_when_nothing_limits_its_memory_any_more(host):
    # CUDA would compute without a limit then: the socket of a control daemon that has ended stays.
    supervisor = host.supervise(
        memory_limit="mps",
        mps_pipe_directory=f"{host.folder}/mps",
        isolation="shared-user",
        timeouts=DaemonTimeouts(first_pause=0.2, check_healthy=0.2),
    )
    shared, whole = lease_daemon(memory_mb=512), lease_daemon()
    with control_daemon(host.folder / "mps"):
        supervisor.set_desired([shared, whole])
        for daemon in (shared, whole):
            await_state(supervisor, daemon, DaemonState.HEALTHY)
    status = await_state(supervisor, shared, DaemonState.DOWN)
    assert "its limit of 512 MiB" in status.detail
    assert not host.pids(shared)
    assert await_state(supervisor, whole, DaemonState.HEALTHY).restarts == 0
    (host.folder / "mps" / "control").unlink()
    with control_daemon(host.folder / "mps"):
        await_state(supervisor, shared, DaemonState.HEALTHY)


@contextmanager
def control_daemon(folder: Path) -> Iterator[None]:
    """Stand for NVIDIA's MPS control daemon, which limits memory, at least with its socket."""
    folder.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.bind(str(folder / "control"))
        control.listen()
        yield


def test_where_no_two_daemons_may_share_a_user_one_that_needs_mps_is_not_started(host):
    supervisor = host.supervise(
        memory_limit="mps", mps_pipe_directory=f"{host.folder}/mps", isolation="own-user"
    )
    shared, whole = lease_daemon(memory_mb=512), lease_daemon()
    with control_daemon(host.folder / "mps"):
        supervisor.set_desired([shared, whole])
        await_state(supervisor, whole, DaemonState.HEALTHY)
        await_state(supervisor, shared, DaemonState.DOWN)
        await_detail(supervisor, shared, "see [daemons]isolation")


def test_many_come_and_go_and_none_is_left(host):
    supervisor = host.supervise("fork", timeouts=TIMEOUTS)
    daemons = [lease_daemon() for _ in range(12)]
    for size in (4, 12, 0, 6, 3):
        supervisor.set_desired(daemons[:size])
    for daemon in daemons[:3]:
        await_state(supervisor, daemon, DaemonState.HEALTHY)
    until(lambda: len(supervisor.statuses()) == 3, "the others to be gone")
    assert set(host.machine.units()) == {unit.name(daemon.key) for daemon in daemons[:3]}
    supervisor.set_desired([])
    until(lambda: not supervisor.statuses(), "all to be gone")
    assert host.processes() == set()
    assert host.machine.units() == []


SLOW_UMOUNT = """\
mv /usr/bin/umount /usr/bin/umount.quick
printf '#!/bin/sh\\nsleep 2\\nexec umount.quick "$@"\\n' >/usr/bin/umount
chmod +x /usr/bin/umount
"""


def test_a_daemon_whose_temporary_files_are_still_removed_is_started_when_they_are(host):
    """As on a busy machine; systemd refuses a unit whose name is still taken, which counted as a failure."""
    daemon = lease_daemon()
    supervisor = host.supervise()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    host.machine.type(SLOW_UMOUNT)
    try:
        host.machine.type(f"kill -KILL {host.main_pid(daemon)}")
        await_detail(supervisor, daemon, "waits until its last run is cleaned up")
        status = await_state(supervisor, daemon, DaemonState.HEALTHY)
        assert status.restarts == 1
    finally:
        host.machine.type("mv /usr/bin/umount.quick /usr/bin/umount")
