# SPDX-License-Identifier: Apache-2.0
"""Daemons as processes: started, watched, started again, ended with everything they left behind."""

from __future__ import annotations

import json
import os
import signal
import socket

import pytest

from gsaas.gpu_host.daemons.plan import DaemonTimeouts
from gsaas.objects.daemon import DaemonState
from tests.kernel.gpu_host.daemons.host import (
    TIMEOUTS,
    GpuHost,
    answer_of,
    await_state,
    lease_daemon,
    listens,
    status_of,
)
from tests.support.waiting import until

pytestmark = pytest.mark.kernel


def test_a_wanted_daemon_serves_and_one_that_is_not_wanted_any_more_leaves_nothing(any_host):
    supervisor = any_host.supervise()
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    assert "GPU-1" in answer_of(daemon.port)
    supervisor.set_desired([])
    await_state(supervisor, daemon, None)
    assert not listens(daemon.port)
    assert any_host.processes() == set()
    assert list(any_host.records.all()) == []


def test_children_that_outlive_their_parent_end_with_the_lease(any_host):
    supervisor = any_host.supervise("fork", "escape", "deaf")
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    assert len(until(lambda: len(any_host.processes()) == 3 and any_host.processes())) == 3
    supervisor.set_desired([])
    await_state(supervisor, daemon, None)
    assert any_host.processes() == set()
    assert not listens(daemon.port)


def test_a_crash_is_noticed_and_only_that_daemon_starts_again(host):
    supervisor = host.supervise("fork")
    mine, other = lease_daemon(), lease_daemon()
    supervisor.set_desired([mine, other])
    for daemon in (mine, other):
        await_state(supervisor, daemon, DaemonState.HEALTHY)
    before = host.tracker.pids(other.key)
    first = host.tracker.pids(mine.key)
    record = next(r for r in host.records.all() if r.daemon == mine)
    os.kill(record.pid, signal.SIGKILL)  # its child serves on, as a LUPINE server's would
    until(lambda: getattr(status_of(supervisor, mine), "restarts", 0) == 1, "the second start")
    await_state(supervisor, mine, DaemonState.HEALTHY)
    assert not first & host.tracker.pids(mine.key)
    assert host.tracker.pids(other.key) == before
    assert status_of(supervisor, other).restarts == 0


def test_a_daemon_that_ends_at_once_is_down_and_says_why(host):
    supervisor = host.supervise("fail", timeouts=DaemonTimeouts(first_pause=30.0))
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    status = await_state(supervisor, daemon, DaemonState.DOWN)
    assert status.detail == "ended with status 3: no licence found"
    supervisor.set_desired([])
    await_state(supervisor, daemon, None)


def test_a_daemon_that_fails_once_gets_another_chance(host):
    supervisor = host.supervise(f"crash-once={host.folder}/flag")
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    assert await_state(supervisor, daemon, DaemonState.HEALTHY).restarts == 1


def test_a_program_that_does_not_exist_is_down_and_says_so(host):
    supervisor = host.supervise(
        command="./no-such-daemon", timeouts=DaemonTimeouts(first_pause=30.0)
    )
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    detail = await_state(supervisor, daemon, DaemonState.DOWN).detail
    assert "no-such-daemon: No such file or directory" in detail


def test_a_folder_that_does_not_exist_is_down_and_says_so(host):
    supervisor = host.supervise(folder="/no/such/folder", timeouts=DaemonTimeouts(first_pause=30.0))
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    assert "/no/such/folder" in await_state(supervisor, daemon, DaemonState.DOWN).detail


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
    """A process has escaped from the daemon's control group: an operator has to end it."""
    supervisor = host.supervise("mute")
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    until(lambda: listens(daemon.port), "the daemon to listen")
    record = next(r for r in host.records.all() if r.pid)
    pid_listener = os.pidfd_open(record.pid)
    try:
        # The listener stays open in this process, which is not tracked.
        got_away = _steal_listener(pid_listener, record.pid, daemon.port)
        supervisor.set_desired([])
        until(
            lambda: "still listens" in (getattr(status_of(supervisor, daemon), "detail", "") or "")
        )
        assert status_of(supervisor, daemon).state is DaemonState.DRAINING
        got_away.close()
        await_state(supervisor, daemon, None)
    finally:
        os.close(pid_listener)


def _steal_listener(pidfd: int, pid: int, port: int) -> socket.socket:
    """A duplicate of the socket on which process *pid* listens (pidfd_getfd, Linux 5.6)."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    for number in range(3, 20):
        descriptor = libc.syscall(438, pidfd, number, 0)
        if descriptor < 0:
            continue
        try:
            found = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            continue
        if found.getsockname()[1:2] == (port,):
            return found
        found.close()
    raise AssertionError(f"process {pid} does not listen on {port}")


def test_a_monitor_that_was_killed_finds_its_daemons_again_and_leaves_them_alone(any_host):
    supervisor = any_host.supervise("fork")
    daemon, gone = lease_daemon(), lease_daemon()
    supervisor.set_desired([daemon, gone])
    for each in (daemon, gone):
        await_state(supervisor, each, DaemonState.HEALTHY)
    before = any_host.tracker.pids(daemon.key)
    any_host.abandon(supervisor)

    second = any_host.supervise("fork")
    assert {c.daemon for c in second.statuses()} == {daemon, gone}
    second.set_desired([daemon])
    await_state(second, gone, None)
    assert any_host.tracker.pids(daemon.key) == before
    assert await_state(second, daemon, DaemonState.HEALTHY).restarts == 0


def test_until_it_is_told_a_monitor_ends_nothing_but_restarts_what_crashes(host):
    supervisor = host.supervise()
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    host.abandon(supervisor)
    second = host.supervise()
    host.tracker.kill(daemon.key)
    until(lambda: getattr(status_of(second, daemon), "restarts", 0) == 1, "the second start")
    await_state(second, daemon, DaemonState.HEALTHY)


def test_a_daemon_whose_monitor_died_in_the_middle_of_its_start_is_not_leaked(host):
    """Its record has no process yet, and its group has one."""
    supervisor = host.supervise()
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    host.abandon(supervisor)
    record = next(iter(host.records.all()))
    host.records.write(type(record)(record.daemon))
    second = host.supervise()
    second.set_desired([])
    await_state(second, daemon, None)
    assert host.processes() == set()


def test_a_group_without_a_record_is_removed(host):
    supervisor = host.supervise()
    daemon = lease_daemon()
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    host.abandon(supervisor)
    host.records.remove(daemon.key)
    host.supervise()
    until(lambda: not host.processes(), "the forgotten daemon to end")


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


def test_logs_are_kept_by_lease_and_within_their_bound(host, monkeypatch):
    monkeypatch.setattr("gsaas.gpu_host.daemons.supervisor.TRIM_INTERVAL", 0.1)
    supervisor = host.supervise("chatty")
    daemon = lease_daemon(position=1)
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    log = host.folder / "logs" / daemon.lease_id / "1.log"
    # The daemon may write to it while it is truncated.
    until(lambda: log.with_suffix(".log.1").exists() and log.stat().st_size <= 1 << 20, "its cut")
    supervisor.set_desired([])
    await_state(supervisor, daemon, None)
    assert log.exists()  # an operator who looks for the cause of an end reads it afterwards


def test_a_daemon_gets_its_own_environment_and_nothing_of_the_monitors(host, monkeypatch):
    monkeypatch.setenv("OS_PASSWORD", "secret")
    seen = host.folder / "seen"
    supervisor = host.supervise(f"look={seen}", environment={"EXTRA": "{gpu_uuid}/{memory_mb}"})
    daemon = lease_daemon(memory_mb=512)
    supervisor.set_desired([daemon])
    await_state(supervisor, daemon, DaemonState.HEALTHY)
    told = json.loads(seen.read_text())
    assert told["environment"]["EXTRA"] == "GPU-1/512"
    assert told["environment"]["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert told["environment"].keys() <= {
        *("PATH", "LANG", "LC_CTYPE", "PWD", "EXTRA", "CUDA_VISIBLE_DEVICES", "OLDPWD"),
        *("SHLVL", "_"),
    }
    assert told["folder"] == str(host.folder)


def test_a_daemon_whose_limit_would_not_hold_is_not_started(host):
    supervisor = host.supervise(
        memory_limit="mps",
        mps_pipe_directory=f"{host.folder}/mps",
        timeouts=DaemonTimeouts(first_pause=0.2),
    )
    shared, whole = lease_daemon(memory_mb=512), lease_daemon()
    supervisor.set_desired([shared, whole])
    await_state(supervisor, whole, DaemonState.HEALTHY)
    status = await_state(supervisor, shared, DaemonState.DOWN)
    assert "its limit of 512 MiB would have no effect" in status.detail
    (host.folder / "mps").mkdir()
    (host.folder / "mps" / "control").touch()
    await_state(supervisor, shared, DaemonState.HEALTHY)


def test_two_monitors_never_share_a_folder(host):
    host.supervise()
    with pytest.raises(Exception, match="another monitor uses"):
        GpuHost(host.folder).supervise()


def test_many_come_and_go_and_none_is_left(host):
    supervisor = host.supervise("fork", timeouts=TIMEOUTS)
    daemons = [lease_daemon() for _ in range(12)]
    for size in (4, 12, 0, 6, 3):
        supervisor.set_desired(daemons[:size])
    for daemon in daemons[:3]:
        await_state(supervisor, daemon, DaemonState.HEALTHY)
    until(lambda: len(supervisor.statuses()) == 3, "the others to be gone")
    assert set(host.tracker.list_keys()) == {daemon.key for daemon in daemons[:3]}
    supervisor.set_desired([])
    until(lambda: not supervisor.statuses(), "all to be gone")
    assert host.processes() == set()
    assert host.tracker.list_keys() == []
