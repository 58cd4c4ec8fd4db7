# SPDX-License-Identifier: Apache-2.0
"""A daemon that its tenant has taken over, against its GPU host: other leases' daemons, the monitor, the machine.

The monitor runs in a machine with systemd as the shipped unit says, as an ordinary user. Two daemons run whatever
programs they are sent; each test sends one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from gsaas.gpu_host.daemons import unit
from gsaas.gpu_host.daemons.systemd import Systemd
from gsaas.objects.daemon import Daemon
from gsaas.remoting.daemon import DaemonCommand
from tests.openstack.bed.errors import BedError
from tests.support.gpu_machine import GPUS, MINE, OTHER, PORTS, SECRET, GpuMachine
from tests.support.waiting import until

pytestmark = pytest.mark.kernel

UNITS = {uuid: unit.name(f"gpu-{uuid}") for uuid in GPUS}
ATTEMPT = """
def attempt(act, *what):
    try:
        done = act(*what)
        print("did", *what, done)
    except OSError:
        pass
def every_pid():
    return range(1, 2000)
def root_of(pid):
    return os.path.join("/proc", str(pid), "root")
def other_pids():
    own = [int(thread) for thread in os.listdir("/proc/self/task")]
    return [pid for pid in every_pid() if pid not in own]
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[GpuMachine]:
    if os.geteuid() != 0:
        pytest.skip("a machine needs root")
    try:
        with GpuMachine() as machine:
            machine.configure()
            machine.type("systemctl start gsaas-monitor")
            for uuid in GPUS:
                until(
                    lambda uuid=uuid: machine.show(UNITS[uuid], "ActiveState") == "active",
                    "the daemons",
                )
                until(lambda uuid=uuid: _serves(machine, uuid), "the daemons to serve")
            yield machine
    except BedError as error:
        pytest.skip(str(error))


def _serves(machine: GpuMachine, uuid: str) -> bool:
    try:
        return machine.order(uuid, "print('here')") == "here"
    except AssertionError:
        return False


def main_pid(machine: GpuMachine, name: str) -> int:
    return int(machine.show(name, "MainPID"))


def attempt(machine: GpuMachine, program: str) -> str:
    """Return what the daemon on MINE achieves with *program*, in which `attempt` ignores what the system refuses."""
    return machine.order(MINE, ATTEMPT + program)


def test_the_daemons_run_under_the_shipped_unit_with_devices_of_their_own(machine):
    """As none did while mount(8), for which the unit has to write /run/mount/utab, gave them their devices."""
    for uuid, (node, _, _) in GPUS.items():
        seen = machine.order(uuid, "print(*sorted(n for n in os.listdir('/dev') if 'nvidia' in n))")
        assert seen == node
        opened = machine.order(uuid, f"print(os.open('/dev/{node}', os.O_RDWR) > 2)")
        assert opened == "True"
    assert machine.type("journalctl --no-pager -u gsaas-monitor -p warning -o cat").stdout == ""


def test_the_monitor_itself_has_one_capability_and_no_root(machine):
    pid = main_pid(machine, "gsaas-monitor")
    status = machine.type(f"grep -E '^(Uid|Cap)' /proc/{pid}/status").stdout.split("\n")
    facts = {line.partition(":")[0]: line.split()[1:] for line in status if line}
    net_admin = f"{1 << 12:016x}"
    assert {name: facts[name][0] for name in ("CapEff", "CapBnd", "CapPrm")} == {
        "CapEff": net_admin,
        "CapBnd": net_admin,
        "CapPrm": net_admin,
    }
    assert "0" not in facts["Uid"]


def test_every_daemon_has_a_user_of_its_own(machine):
    uids = {machine.show(name, "UID") for name in UNITS.values()}
    assert len(uids) == 2
    accounts = machine.type("id -u gsaas; id -u gsaas-monitor").stdout.split()
    assert not uids & {"0", *accounts, "[not set]"}


def test_it_cannot_read_the_account_of_the_message_bus(machine):
    said = attempt(
        machine,
        """
import glob
def read(path):
    with open(path, "rb") as file:
        return file.read()
found = ["/etc/gsaas/gsaas-monitor.conf"]
for pid in every_pid():
    found += [root_of(pid) + "/etc/gsaas/gsaas-monitor.conf", f"/proc/{pid}/environ"]
for path in found:
    attempt(read, path)
attempt(os.listdir, "/etc/gsaas")
""",
    )
    assert SECRET not in said
    assert "gsaas-monitor.conf" not in said
    # What it can read is its own environment.
    assert said.count("did") <= 1 + len(machine.processes(UNITS[MINE]))


def test_it_cannot_open_the_device_node_of_another_lease(machine):
    node = GPUS[OTHER][0]
    major, number = GPUS[OTHER][2]
    assert (
        attempt(
            machine,
            f"""
paths = ["/dev/{node}", "/dev/char/{major}:{number}"]
paths += [root_of(pid) + "/dev/{node}" for pid in every_pid()]
for path in paths:
    attempt(lambda path: os.open(path, os.O_RDWR), path)
for folder in ("/dev", "/tmp", "/dev/shm", "/var/tmp"):
    attempt(lambda path: os.mknod(path, 0o20666, os.makedev({major}, {number})), folder + "/own")
""",
        )
        == ""
    )


def test_its_control_group_may_not_open_that_device_even_if_it_had_a_node(machine):
    """What root makes in its /dev, it cannot use: not its file system refuses it, which says EACCES, but its group."""
    pid = main_pid(machine, UNITS[MINE])
    major, number = GPUS[OTHER][2]
    make = f"mount -o remount,rw /dev; mknod -m 0666 /dev/gift c {major} {number}"
    machine.type(f"nsenter --target={pid} --mount sh -ec '{make}'")
    said = machine.order(MINE, "os.open('/dev/gift', os.O_RDWR)")
    assert said.startswith("PermissionError: [Errno 1] "), said


def test_it_cannot_read_the_memory_of_another_process(machine):
    assert (
        attempt(
            machine,
            """
for pid in other_pids():
    attempt(lambda path: os.open(path, os.O_RDWR), f"/proc/{pid}/mem")
    attempt(os.readlink, f"/proc/{pid}/exe")
    attempt(os.listdir, f"/proc/{pid}/fd")
""",
        )
        == ""
    )


def test_it_does_not_even_see_other_processes(machine):
    own = machine.order(MINE, "print(*sorted(int(n) for n in os.listdir('/proc') if n.isdigit()))")
    assert {int(pid) for pid in own.split()} <= machine.processes(UNITS[MINE])


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
def test_it_cannot_connect_to_the_daemon_of_another_lease(machine, address):
    port = PORTS[OTHER]
    said = machine.order(MINE, f"socket.create_connection(('{address}', {port}), 5)")
    assert said.startswith("ConnectionRefusedError")
    assert machine.answer(port, address) == "ConnectionRefusedError", "nor may root of the host"


def test_it_cannot_connect_there_where_programs_of_the_host_may_either(machine):
    """A lease without a VM admits programs of the GPU host itself; daemons are none of them."""
    port = PORTS[OTHER]
    element = f"gsaas_fence admitted {{ 127.0.0.1 . {port} }}"
    # The table is the monitor's own, so it has to be away while the test plays the engine.
    machine.type("systemctl stop gsaas-monitor")
    try:
        listed = machine.type("nft list table inet gsaas_fence").stdout
        if "owner" in listed or machine.type(f"nft add element inet {element}", False).returncode:
            pytest.skip("no other program can change the table of the fence with this kernel")
        assert OTHER in machine.answer(port)
        said = machine.order(MINE, f"socket.create_connection(('127.0.0.1', {port}), 5)")
        assert said.startswith("ConnectionRefusedError")
    finally:
        machine.type("systemctl start gsaas-monitor")


def test_it_cannot_write_to_anything_but_its_own_temporary_folders(machine):
    said = attempt(
        machine,
        """
def writable(folder):
    path = os.path.join(folder, "x")
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.unlink(path)
    return ""
seen = set()
for top in ("/run", "/var", "/etc", "/opt", "/usr/local", "/tmp", "/dev", "/sys/fs/cgroup"):
    for folder, _, _ in os.walk(top):
        attempt(writable, folder)
for path in ("/etc/gsaas/gsaas-monitor.conf", "/run/gsaas-monitor", "/var/log/gsaas"):
    attempt(lambda path: os.rename(path, path + ".old"), path)
""",
    )
    written = {line.split()[1] for line in said.splitlines()}
    assert {path for path in written if not path.startswith("/tmp")} <= {  # noqa: S108
        *("/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock"),  # noqa: S108
    }
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108
        machine.order(MINE, f"open('{folder}/mark-of-mine', 'w').close()")
        assert machine.order(OTHER, f"print(os.path.exists('{folder}/mark-of-mine'))") == "False"
        assert machine.type(f"test -e {folder}/mark-of-mine", check=False).returncode == 1


def test_it_cannot_signal_any_other_process(machine):
    monitor = main_pid(machine, "gsaas-monitor")
    said = attempt(
        machine,
        """
for pid in other_pids():
    attempt(lambda pid: os.kill(pid, 0), pid)
""",
    )
    assert said == ""
    assert main_pid(machine, "gsaas-monitor") == monitor


def test_it_cannot_become_another_user_or_get_namespaces_of_its_own(machine):
    said = attempt(
        machine,
        """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for flag in (0x10000000, 0x20000000, 0x00020000, 0x40000000, 0x02000000):
    if libc.unshare(flag) == 0:
        print("did unshare", hex(flag))
for uid in (0, 1, 990, 61184):
    attempt(os.setuid, uid)
    attempt(os.setgid, uid)
print(open("/proc/self/status").read())
""",
    )
    assert "did" not in said
    assert "NoNewPrivs:\t1" in said
    assert "CapBnd:\t0000000000000000" in said


def test_it_cannot_listen_on_the_port_of_a_neighbour_or_of_a_lease(machine):
    listed = machine.show(UNITS[MINE], "SocketBindAllow").strip()
    assert listed.replace(":", "") == f"tcp{PORTS[MINE]}", "systemctl 252 writes no colon"
    assert machine.show(UNITS[MINE], "SocketBindDeny").strip() == "any"
    if "+BPF_FRAMEWORK" not in machine.type("systemctl --version").stdout:
        pytest.skip("systemd was built without the BPF framework, and so ignores SocketBindDeny")
    said = attempt(
        machine,
        """
def bind(port):
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", port))
    return ""
for port in (0, 8400, 20000, 20999):
    attempt(bind, port)
""",
    )
    assert said == ""


THIEF = """
import time
child = os.fork()
if child == 0:
    os.closerange(3, 256)  # or its order would not end
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            listener = socket.create_server(("0.0.0.0", PORT))
            break
        except OSError:
            pass
    open("/tmp/listens", "w").close()
    listener.accept()
    open("/tmp/got-a-client", "w").close()
    os._exit(0)
print(child)
"""


def test_who_takes_the_port_of_a_neighbour_that_is_down_gets_none_of_its_clients(machine):
    """Not even the monitor's health check, which would hand out the thief in the place of the neighbour."""
    if "+BPF_FRAMEWORK" in machine.type("systemctl --version").stdout:
        pytest.skip("it cannot take the port: see the test before")
    port = PORTS[OTHER]
    assert OTHER in machine.answer_to("gsaas-monitor", port)
    machine.order(MINE, THIEF.replace("PORT", str(port)))
    machine.type(f"systemctl kill --signal=KILL {UNITS[OTHER]}")
    exists = "print(os.path.exists('/tmp/{}'))"
    until(lambda: machine.order(MINE, exists.format("listens")) == "True", "the thief has the port")
    assert machine.answer_to("gsaas-monitor", port) == "ConnectionRefusedError"
    assert machine.order(MINE, exists.format("got-a-client")) == "False"
    # The thief and its parent, which ends it with the rest of its unit.
    machine.type(f"systemctl kill --signal=KILL {UNITS[MINE]}")
    for uuid in GPUS:
        until(lambda uuid=uuid: _serves(machine, uuid), "the daemons to serve again")
    until(lambda: OTHER in machine.answer_to("gsaas-monitor", port), "the neighbour")


def test_it_cannot_fill_the_disk_of_its_host_with_temporary_files(machine):
    said = machine.order(
        MINE,
        """
import errno
for folder in ("/tmp", "/var/tmp"):
    written = 0
    try:
        with open(folder + "/big", "wb") as file:
            for _ in range(64):
                file.write(bytes(1 << 20))
                file.flush()
                written += 1
    except OSError as error:
        print(errno.errorcode[error.errno], written <= 8)
""",
    )
    assert said.splitlines() == ["ENOSPC True"] * 2
    # Where it wrote is memory, of which its limit says how much, and there is nothing of it on the disk.
    folder = f"/run/gsaas-daemons/{PORTS[MINE]}"
    assert machine.type(f"ls {folder}").stdout.split() == ["big"]
    mounted = f"findmnt --noheadings --output=FSTYPE --mountpoint {folder}"
    assert machine.type(mounted).stdout.strip() == "tmpfs"
    assert machine.type("find /tmp /var/tmp -maxdepth 1 -name big").stdout == ""
    assert machine.order(OTHER, "print(os.listdir('/tmp'))") == "[]"
    assert machine.order(OTHER, "os.listdir('/run/gsaas-daemons')").startswith("PermissionError")


def test_no_other_user_of_the_host_reaches_its_temporary_files(machine):
    folder = f"/run/gsaas-daemons/{PORTS[MINE]}"
    place = f"setpriv --reuid=nobody --regid=nogroup --clear-groups touch {folder}/planted"
    assert "Permission denied" in machine.type(place, check=False).stderr
    assert machine.order(MINE, "print(os.path.exists('/tmp/planted'))") == "False"


def test_what_it_left_in_its_temporary_folder_is_gone_with_it(machine):
    machine.order(MINE, "open('/tmp/left', 'w').close()")
    machine.type(f"systemctl kill --signal=KILL {UNITS[MINE]}")
    until(lambda: _serves(machine, MINE), "the daemon to serve again")
    assert machine.order(MINE, "print(os.listdir('/tmp'), os.listdir('/var/tmp'))") == "[] []"


def test_nothing_of_it_stays_mounted_when_it_is_stopped_while_there_is_no_monitor(machine):
    """systemd unmounts its files. While it remembers that the daemon failed, it lists the mount, as inactive."""
    folder = f"/run/gsaas-daemons/{PORTS[MINE]}"
    mounted = f"grep -c ' {folder} ' /proc/mounts"
    assert machine.type(mounted, check=False).stdout.strip() == "1"
    machine.type("systemctl stop gsaas-monitor")
    machine.type(f"systemctl stop {UNITS[MINE]}")
    until(lambda: machine.type(mounted, check=False).stdout.strip() == "0", "the end of the mount")
    machine.type("systemctl start gsaas-monitor")
    until(lambda: _serves(machine, MINE), "the daemon to serve again")
    assert machine.order(MINE, "print(os.listdir('/tmp'))") == "[]"


def test_it_cannot_use_io_uring_which_makes_sockets_of_any_kind(machine):
    said = machine.order(
        MINE,
        """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for number in (425, 426, 427):
    print(libc.syscall(number, 0, 0, 0, 0, 0, 0), ctypes.get_errno())
""",
    )
    assert said.splitlines() == ["-1 1"] * 3, "EPERM"


def test_it_cannot_write_to_the_journal_but_by_printing(machine):
    said = attempt(
        machine,
        """
def connect(path, kind):
    with socket.socket(socket.AF_UNIX, kind) as journal:
        journal.connect(path)
for path in ("/run/systemd/journal/socket", "/run/systemd/journal/dev-log", "/dev/log"):
    attempt(connect, path, socket.SOCK_DGRAM)
attempt(connect, "/run/systemd/journal/stdout", socket.SOCK_STREAM)
""",
    )
    assert said == ""


def test_what_it_prints_is_shown_on_no_terminal_of_the_host(machine):
    """journald shows lines of the priority emerg to everybody who is logged in; systemd reads it in <0>."""
    machine.order(MINE, "os.write(1, b'<0>pay at evil.example.org' + bytes([10]))")
    command = f"journalctl --no-pager -u {UNITS[MINE]} -o json"

    def printed() -> list[dict]:
        entries = map(json.loads, machine.type(command).stdout.splitlines())
        return [entry for entry in entries if "evil.example.org" in str(entry["MESSAGE"])]

    (entry,) = until(printed, "what it printed")
    assert (entry["MESSAGE"], entry["PRIORITY"]) == ("<0>pay at evil.example.org", "6")


def test_it_connects_to_no_socket_of_the_host(machine):
    """But that by which a program learns the names of systemd's users, which everybody may."""
    said = attempt(
        machine,
        """
import stat
def connect(path, kind):
    with socket.socket(socket.AF_UNIX, kind) as made:
        made.connect(path)
    return ""
for top in ("/run", "/var", "/tmp", "/dev"):
    for folder, _, files in os.walk(top):
        for path in (os.path.join(folder, name) for name in files):
            try:
                if not stat.S_ISSOCK(os.lstat(path).st_mode):
                    continue
            except OSError:
                continue
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
                attempt(connect, path, kind)
""",
    )
    reached = {line.split()[1] for line in said.splitlines()}
    assert {path for path in reached if not path.startswith("/run/systemd/userdb/")} == set()


def test_it_shares_no_memory_messages_or_keys_with_its_neighbour(machine):
    """By System V, POSIX message queues, and keyrings of the kernel."""
    common = """
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
add_key, keyctl = {"x86_64": (248, 250), "aarch64": (217, 219)}[platform.machine()]
def keyring(number):
    return ctypes.c_long(number)
"""
    machine.order(
        MINE,
        common
        + """
made = [libc.shmget(4711, 4096, 0o1666), libc.msgget(4711, 0o1666), libc.semget(4711, 1, 0o1666)]
print(made)
for ring in (-3, -4, -5):
    libc.syscall(add_key, b"user", b"mark-of-mine", b"x", ctypes.c_size_t(1), keyring(ring))
""",
    )
    said = machine.order(
        OTHER,
        common
        + """
print(libc.shmget(4711, 0, 0), libc.msgget(4711, 0), libc.semget(4711, 0, 0))
print([libc.syscall(keyctl, 10, keyring(ring), b"user", b"mark-of-mine", 0) for ring in (-3, -4, -5)])
print("mark-of-mine" in open("/proc/keys").read(), os.listdir("/dev/mqueue"))
""",
    )
    assert said.splitlines() == ["-1 -1 -1", "[-1, -1, -1]", "False []"]


SQUATTER = """
import socket
while True:
    try:
        listener = socket.create_server(("0.0.0.0", PORT))
        break
    except OSError:
        pass
while True:
    listener.accept()[0].sendall(b"not the daemon")
"""


def test_no_ordinary_service_stands_in_for_a_daemon_that_is_down(machine):
    """Such as one that takes any free port when it starts; it would get the tenants of that daemon."""
    port = PORTS[OTHER]
    program = SQUATTER.replace("PORT", str(port))
    machine.type(f"cat >/opt/squatter.py <<'END'\n{program}\nEND")
    machine.type("systemd-run --unit=ordinary --collect /usr/bin/python3 /opt/squatter.py")
    try:
        machine.type(f"systemctl kill --signal=KILL {UNITS[OTHER]}")
        listening = f"ss -Htlnp sport = :{port}"
        pid = main_pid(machine, "ordinary")
        until(lambda: f"pid={pid}," in machine.type(listening).stdout, "the service has the port")
        for _ in range(3):
            assert machine.answer_to("gsaas-monitor", port) == "ConnectionRefusedError"
    finally:
        machine.type("systemctl kill --signal=KILL ordinary")
    until(lambda: _serves(machine, OTHER), "the daemon to serve again")
    until(lambda: OTHER in machine.answer_to("gsaas-monitor", port), "the daemon")


def test_it_cannot_ask_systemd_for_a_unit_without_walls(machine):
    """Not even over D-Bus, which it does not reach; and polkit would refuse its user."""
    said = attempt(
        machine,
        """
def call(path):
    with socket.socket(socket.AF_UNIX) as bus:
        bus.connect(path)
    return ""
for path in ("/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket", "/run/systemd/private"):
    attempt(call, path)
""",
    )
    assert said == ""
    uid = machine.show(UNITS[MINE], "UID")
    command = f"setpriv --reuid={uid} --regid={uid} --clear-groups systemd-run"
    refused = machine.type(f"{command} --unit=gsaas-daemon-evil /bin/true </dev/null", check=False)
    assert refused.returncode
    assert "gsaas-daemon-evil.service" not in machine.units()


def as_user(user: str, command: str) -> str:
    return f"setpriv --reuid={user} --regid={user} --init-groups {command} </dev/null"


def test_the_account_of_the_monitor_may_not_stop_other_units_or_take_a_daemons_walls_away(machine):
    systemctl = "systemctl --no-ask-password"
    for words in ("stop systemd-journald", f"set-property --runtime {UNITS[MINE]} TasksMax=9999"):
        assert machine.type(as_user("gsaas-monitor", f"{systemctl} {words}"), False).returncode
    assert machine.show("systemd-journald", "ActiveState") == "active"
    assert machine.show(UNITS[MINE], "TasksMax") == "4096"


def test_gsaass_other_processes_on_the_host_may_neither_start_nor_end_a_unit(machine):
    """As gsaas-rodvr, which has the user gsaas, beside the monitor."""
    pid = main_pid(machine, UNITS[MINE])
    for command in (
        "systemd-run --no-ask-password --unit=gsaas-daemon-evil /bin/true",
        "systemd-run --no-ask-password --unit=evil /bin/true",
        f"systemctl --no-ask-password stop {UNITS[MINE]}",
        f"systemctl --no-ask-password kill --signal=KILL {UNITS[MINE]}",
        f"kill -KILL {pid}",
        f"kill -KILL {main_pid(machine, 'gsaas-monitor')}",
        "touch /run/gsaas-monitor/lock",
    ):
        assert machine.type(as_user("gsaas", command), check=False).returncode, command
    assert main_pid(machine, UNITS[MINE]) == pid
    assert "gsaas-daemon-evil.service" not in machine.units()


def test_it_cannot_leave_its_control_group_and_nothing_survives_its_release(machine):
    """The release is what `--clean` does to all daemons: it stops their units, and waits until they are gone."""
    group = machine.show(UNITS[MINE], "ControlGroup")
    said = attempt(
        machine,
        f"""
import time
def move(path):
    with open(path, "w") as file:
        file.write("0")
        file.flush()
    return ""
for folder, _, _ in os.walk("/sys/fs/cgroup"):
    attempt(move, folder + "/cgroup.procs")
    attempt(os.mkdir, folder + "/mine")
attempt(os.mkdir, "/sys/fs/cgroup{group}/below")
for _ in range(3):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    else:
        os.closerange(3, 256)  # or its order would not end
        os.setsid()
        if os.fork():
            os._exit(0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        device = os.open("/dev/{GPUS[MINE][0]}", os.O_RDWR)
        time.sleep(3600)
""",
    )
    assert said == ""
    uid = machine.show(UNITS[MINE], "UID")
    left = until(lambda: (found := processes_of(machine, uid)) and len(found) >= 4 and found)
    assert left == machine.processes(UNITS[MINE])
    machine.type("systemctl stop gsaas-monitor")
    assert processes_of(machine, uid) == left, "daemons outlive the monitor"
    machine.type("/opt/gsaas/bin/gsaas-monitor --config-file /etc/gsaas/gsaas-monitor.conf --clean")
    assert processes_of(machine, uid) == set()
    assert machine.units() == []
    assert machine.type("nft list tables").stdout == ""
    machine.type("systemctl start gsaas-monitor")
    for uuid in GPUS:
        until(lambda uuid=uuid: _serves(machine, uuid), "the daemons to serve again")


def processes_of(machine: GpuMachine, uid: str) -> set[int]:
    return {int(pid) for pid in machine.type(f"pgrep -u {uid}", check=False).stdout.split()}


@pytest.fixture
def neighbours(machine) -> Iterator[dict[str, str]]:
    """Two daemons that share a GPU through MPS, and so a user; order name -> unit."""
    machine.type(f"install -d -m 0755 /run/mps/{MINE} /run/mps/{OTHER}")
    systemd = Systemd(machine.bus)
    found = {}
    for number in range(2):
        daemon = Daemon(MINE, 20000 + number, 1024, "lease", number)
        argv = ("/usr/bin/python3", "-ES", "/opt/hostile_daemon.py", str(daemon.port), MINE)
        command = DaemonCommand(
            (*argv, f"neighbour-{number}"), {}, "/opt", mps_pipe_directory=f"/run/mps/{MINE}"
        )
        confinement = unit.Confinement(
            ("/etc/gsaas",), 0, 100, 0.1, systemd.version(), mps_folders="/run/mps"
        )
        devices = unit.Devices((f"/dev/{GPUS[MINE][0]}",))
        wanted = unit.properties(daemon, 0, command, devices, confinement)
        name = unit.name(daemon.key)
        systemd.start_transient(name, wanted, [unit.temporary_files(daemon, confinement)])
        found[f"neighbour-{number}"] = name
    for name in found:
        until(lambda name=name: _serves(machine, name), "the neighbours")
    yield found
    for name in found.values():
        machine.type(f"systemctl stop {name}", check=False)
        # SIGKILL may have ended it, and the next test has one of this name, too.
        systemd.forget(name)
    systemd.close()
    listed = "systemctl list-units --all --plain --no-legend 'run-gsaas*-2000[01].mount'"
    until(lambda: not machine.type(listed).stdout.strip(), "the end of their temporary files")


def test_neighbours_under_mps_share_a_user_and_nothing_else_that_systemd_can_part(
    machine, neighbours
):
    one, two = neighbours
    pid = main_pid(machine, neighbours[two])
    assert machine.show(neighbours[one], "UID") == machine.show(neighbours[two], "UID")
    said = machine.order(
        one,
        ATTEMPT
        + f"""
for name in ("mem", "environ", "maps"):
    attempt(lambda path: os.open(path, os.O_RDONLY), "/proc/{pid}/" + name)
attempt(os.listdir, root_of({pid}) + "/tmp")
attempt(os.listdir, "/proc/{pid}/fd")
attempt(os.listdir, "/proc/{pid}")
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for request in (16, 0x4206):
    if libc.ptrace(request, {pid}, 0, 0) == 0:
        print("did ptrace")
""",
    )
    assert said == ""
    machine.order(one, "open('/tmp/mark', 'w').close()")
    assert machine.order(two, "print(os.path.exists('/tmp/mark'))") == "False"


def test_a_client_of_mps_sees_the_folder_of_its_own_gpus_control_daemon_only(machine, neighbours):
    one, _ = neighbours
    machine.type(f"touch /run/mps/{MINE}/control /run/mps/{OTHER}/control")
    assert machine.order(one, "print(*os.listdir('/run/mps'))") == MINE
    assert machine.order(one, f"print(*os.listdir('/run/mps/{MINE}'))") == "control"
    said = machine.order(one, ATTEMPT + f"attempt(os.listdir, '/run/mps/{OTHER}')")
    assert said == "", "nor is it there"
