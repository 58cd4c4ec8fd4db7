# SPDX-License-Identifier: Apache-2.0
"""A daemon as a unit of systemd: what is asked of systemd, and what is read back."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gsaas.gpu_host.daemons import unit
from gsaas.gpu_host.daemons.unit import Confinement, Devices, UnitState
from gsaas.objects.daemon import Daemon
from gsaas.remoting.daemon import DaemonCommand

DAEMON = Daemon("GPU-1", 20000, 512, "0f1e", 1)
COMMAND = DaemonCommand(("./daemon", "-p", "$PORT", "a b"), {"B": "2", "A": "1 x"}, "/opt/it/bin")
CONFINEMENT = Confinement(("/etc/gsaas", "/etc/elsewhere.conf"), 1024, 100, 2.5)
DEVICES = Devices(
    ("/dev/nvidia0", "/dev/nvidiactl"), hidden=("/proc/driver/nvidia/gpus/0000:5e:00.0",)
)


def planned(
    command: DaemonCommand = COMMAND,
    devices: Devices | None = DEVICES,
    confinement: Confinement = CONFINEMENT,
) -> dict[str, list[object]]:
    """Return name -> all values that are given for it."""
    found: dict[str, list[object]] = {}
    for name, (_, value) in unit.properties(DAEMON, 3, command, devices, confinement):
        found.setdefault(name, []).append(value)
    return found


names = st.text("abcdefGPU-0123456789./", min_size=1, max_size=30)


@given(
    gpu=names,
    port=st.integers(1, 65533),
    mib=st.none() | st.integers(1, 1 << 30),
    lease=st.none() | st.uuids().map(str),
    position=st.integers(0, 99),
    ports=st.integers(1, 3),
    turn=st.integers(0, 1),
    restarts=st.integers(0, 1 << 20),
)
def test_a_monitor_reads_from_a_unit_which_daemon_it_is(
    gpu, port, mib, lease, position, ports, turn, restarts
):
    daemon = Daemon(
        f"GPU-{gpu}", port, mib, lease, position if lease else 0, ports=ports, turn=turn
    )
    assert unit.parse(unit.describe(daemon, restarts)) == (daemon, restarts)
    assert unit.key(unit.name(daemon.key)) == daemon.key


@pytest.mark.slow
@given(st.text())
@example("GPU 0")
def test_the_gpu_of_a_leases_daemon_may_have_any_name(gpu):
    daemon = Daemon(gpu, 20000, lease_id="0f1e")
    described = unit.describe(daemon, 3)
    assert unit.parse(described) == (daemon, 3)
    assert described.isascii()
    assert described.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sshd",
        "GSaaS daemon gpu=GPU-1",
        "GSaaS daemon gpu=GPU-1 port=x restarts=0",
        "GSaaS daemons",
    ],
)
def test_another_description_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        unit.parse(text)


def test_the_program_is_named_absolutely_and_its_words_are_left_alone():
    (started,) = planned()["ExecStartEx"]
    assert started == [
        ("/opt/it/bin/daemon", ["./daemon", "-p", "$PORT", "a b"], ["no-env-expand"])
    ]
    assert planned()["Environment"] == [["A=1 x", "B=2"]]
    plain = planned(DaemonCommand(("python3",), {}, "/opt"))
    assert plain["ExecStartEx"] == [[("python3", ["python3"], ["no-env-expand"])]]


def test_a_daemon_has_a_user_of_its_own_that_systemd_makes():
    found = planned()
    assert "User" not in found
    assert found["DynamicUser"] == [True]
    assert found["PrivateUsers"] == [True]
    assert found["CapabilityBoundingSet"] == found["AmbientCapabilities"] == [0]


def test_daemons_of_one_mps_control_daemon_share_a_user_and_see_its_folder():
    one, same, other = (
        planned(DaemonCommand(("x",), {}, "/", mps_pipe_directory=folder))
        for folder in ("/run/mps/a", "/run/mps/a/", "/run/mps/b")
    )
    assert one["User"] == same["User"] != other["User"]
    assert one["BindPaths"][1] == [("/run/mps/a", "/run/mps/a", False, 16384)]
    assert one["TemporaryFileSystem"] == [[]], "MPS uses the host's /dev/shm"
    assert planned()["TemporaryFileSystem"] == [[("/dev/shm", "mode=1777")]]  # noqa: S108
    (name,) = one["User"]
    assert len(name) < 32, "the longest name of a user"


@pytest.mark.parametrize("pipes", [None, "/run/mps/GPU-1"])
def test_the_mps_folders_of_other_gpus_are_covered_for_every_daemon(pipes):
    command = DaemonCommand(("x",), {}, "/", mps_pipe_directory=pipes)
    found = planned(command, confinement=Confinement((), 0, 1, 1.0, mps_folders="/run/mps"))
    assert ("/run/mps", "ro,mode=0755") in found["TemporaryFileSystem"][0]


def test_a_daemon_has_its_own_devices_and_no_others():
    found = planned()
    assert found["PrivateDevices"] == [True]
    assert found["DevicePolicy"] == ["closed"]
    assert found["DeviceAllow"] == [[("/dev/nvidia0", "rw"), ("/dev/nvidiactl", "rw")]]
    assert [bound[0] for bound in found["BindPaths"][0]] == ["/dev/nvidia0", "/dev/nvidiactl"]
    everything = planned(devices=None)
    assert everything["DevicePolicy"] == ["closed"]
    assert all(name.startswith("char-nvidia") for name, _ in everything["DeviceAllow"][0])


def test_paths_of_gsaas_and_of_other_gpus_are_out_of_reach_whether_they_exist_or_not():
    (hidden,) = planned()["InaccessiblePaths"]
    assert {
        *("-/etc/gsaas", "-/etc/elsewhere.conf", "-/run/dbus", "-/run/systemd/journal"),
        "-/proc/driver/nvidia/gpus/0000:5e:00.0",
    } <= set(hidden)
    assert all(path.startswith("-/") for path in hidden)


def test_its_temporary_files_are_in_a_bounded_file_system_that_goes_with_it():
    found = planned()
    bound = [tuple(each[:2]) for paths in found["BindPaths"] for each in paths]
    folder = "/run/gsaas-daemons/20000"
    assert {(folder, "/tmp"), (folder, "/var/tmp")} <= set(bound)  # noqa: S108
    assert "-/run/gsaas-daemons" in found["InaccessiblePaths"][0], "those of other daemons"
    confinement = replace(CONFINEMENT, tmp_mb=7)
    name, properties = unit.temporary_files(DAEMON, confinement)
    assert found["Requires"] == found["After"] == [[name]]
    values = {key: value for key, (_, value) in properties}
    assert values["Type"] == "tmpfs"
    assert "size=7M" in values["Options"].split(",")
    assert values["StopWhenUnneeded"] is True
    assert values["DirectoryMode"] == 0o700, "or every user of the host could place files there"
    assert values["CollectMode"] == "inactive-or-failed", "or the port is lost after one failure"


def test_the_unit_of_its_temporary_files_has_the_name_that_systemd_asks_for():
    name, _ = unit.temporary_files(DAEMON, CONFINEMENT)
    command = ["systemd-escape", "--path", "--suffix=mount", f"{unit.TEMPORARY}/{DAEMON.port}"]
    assert subprocess.run(command, capture_output=True, text=True).stdout == f"{name}\n"


def test_it_may_listen_on_its_own_ports_only():
    found = planned()
    assert found["SocketBindAllow"] == [[(0, 6, 1, 20000)]]
    assert found["SocketBindDeny"] == [[(0, 0, 0, 0)]]
    several = unit.properties(replace(DAEMON, ports=3), 0, COMMAND, None, CONFINEMENT)
    assert ("SocketBindAllow", ("a(iiqq)", [(0, 6, 3, 20000)])) in several


def test_the_daemon_of_a_cpu_device_has_no_more_of_the_hosts_memory_than_its_share():
    found = planned(replace(COMMAND, host_memory_mb=300))
    assert found["MemoryMax"] == found["LimitDATA"] == [300 << 20]
    assert found["MemorySwapMax"] == [0]
    assert "LimitDATA" not in planned()


def test_the_daemons_of_a_cpu_device_share_its_cores():
    found = planned(devices=Devices((), cores=(2, 9)))
    assert found["AllowedCPUs"] == [bytes([0b100, 0b10])]
    assert found["CPUAffinity"] == [bytes([0b100, 0b10])]
    assert found["CPUQuotaPerSecUSec"] == [2_000_000]
    assert found["PrivateDevices"] == [True]
    assert not {"AllowedCPUs", "CPUAffinity", "CPUQuotaPerSecUSec"} & set(planned())


def test_limits_are_those_of_the_configuration():
    found = planned()
    assert found["MemoryMax"] == [1024 << 20]
    assert found["MemorySwapMax"] == [0]
    assert found["TasksMax"] == [100]
    assert found["TimeoutStopUSec"] == [2_500_000]
    unlimited = planned(confinement=Confinement((), 0, 100, 0.0))
    assert unlimited["MemoryMax"] == unlimited["MemorySwapMax"] == [(1 << 64) - 1]
    assert unlimited["TimeoutStopUSec"] == [1], "0 would mean to wait for ever"


def test_io_uring_which_no_filter_sees_into_is_taken_out_of_the_permitted_calls():
    allowed, denied = planned()["SystemCallFilter"]
    assert allowed == (True, ["@system-service"])
    assert denied == (False, ["io_uring_setup", "io_uring_enter", "io_uring_register"])


def test_pids_are_hidden_from_neighbours_under_mps_where_systemd_can_do_that():
    """Elsewhere they need not be: another user's processes cannot be signalled, and PID 1 ignores SIGTERM."""
    shared = DaemonCommand(("x",), {}, "/", mps_pipe_directory="/run/mps")
    new = Confinement((), 0, 1, 1.0, systemd=257)
    assert "PrivatePIDs" not in planned(shared)
    assert "PrivatePIDs" not in planned(confinement=new)
    assert planned(shared, confinement=new)["PrivatePIDs"] == ["yes"]


@pytest.mark.parametrize(
    ("active", "job", "alive", "ended"),
    [
        ("inactive", "start", True, False),
        ("activating", "", True, False),
        ("active", "", True, False),
        ("active", "stop", True, False),
        ("deactivating", "", False, False),
        ("failed", "", False, True),
        ("inactive", "", False, True),
    ],
)
def test_whether_a_daemon_lives_follows_from_its_unit(active, job, alive, ended):
    state = UnitState("x", "", active, job)
    assert (state.alive, state.ended) == (alive, ended)


@pytest.mark.parametrize(
    ("result", "status", "said"),
    [
        ("exit-code", 3, "ended with status 3"),
        ("exit-code", 203, "ended with status 203: its program cannot be executed"),
        ("signal", 9, "was ended by signal 9"),
        ("oom-kill", 9, "was ended because it used too much memory of the host"),
        ("success", 0, "ended"),
        ("timeout", 0, "ended: timeout"),
    ],
)
def test_how_a_daemon_ended_is_said_in_words(result, status, said):
    assert unit.failure(result, status).startswith(said)
