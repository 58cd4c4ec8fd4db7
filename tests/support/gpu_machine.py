# SPDX-License-Identifier: Apache-2.0
"""A GPU host as an operator has it: a machine with systemd, its users, and the files of etc/gsaas as they are.

It has no NVIDIA driver. A drop-in for the unit of the monitor has a folder stand for /proc/driver, and device nodes of
other drivers, which exist everywhere and do nothing until they are used, stand for those of GPUs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kernel.devstack.machine import REPOSITORY, Machine
from tests.support import folders, shipped_monitor
from tests.support.shipped_monitor import SOURCE
from tests.support.waiting import PATIENCE

GPUS = {
    "GPU-00000000-0000-4000-8000-000000000000": ("nvidia0", "0000:3b:00.0", (10, 200)),  # tun
    "GPU-00000000-0000-4000-8000-000000000001": ("nvidia1", "0000:5e:00.0", (10, 229)),  # fuse
}
"""UUID -> its device node, its name in /proc, and the number of the device that stands for it."""
MINE, OTHER = GPUS
PORTS = {MINE: 8308, OTHER: 8309}
"""Those of the daemons of whole GPUs."""
SECRET = "the-password-of-the-message-bus"
CONFIGURATION = f"""\
[DEFAULT]
host = gpu1
transport_url = fake://gsaas:{SECRET}@controller/
[monitor]
source = declared
gpu_address = 127.0.0.1
inventory = /etc/gsaas/gpu-host.toml
[remoting]
driver = rcuda
[daemons]
folder = /opt
command = /usr/bin/python3 -ES /opt/hostile_daemon.py {{port}} {{gpu_uuid}} {{gpu_uuid}}
health = simulated
memory_limit = none
stop_timeout = 1
tmp_mb = 8
"""
INVENTORY = f"""\
gpu_network = "127.0.0.0/8"
[[hosts]]
name = "gpu1"
gpu_address = "127.0.0.1"
gpus = {len(GPUS)}
uuids = {json.dumps(list(GPUS))}
"""
INSTALL = f"""\
mkdir -p {SOURCE}
mount --rbind {REPOSITORY} {SOURCE}
{shipped_monitor.INSTALL}
cp {SOURCE}/tests/support/*_daemon.py /opt/
cd /etc/systemd/system
mkdir gsaas-monitor.service.d
printf '[Service]\nBindReadOnlyPaths=/opt/driver:/proc/driver\n' >gsaas-monitor.service.d/driver.conf
systemctl daemon-reload
"""
CONNECT = """\
import socket, sys
try: print(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60).recv(99).decode())
except OSError as error: print(type(error).__name__)
"""
ORDER = """\
import socket, sys
with socket.socket(socket.AF_UNIX) as order:
    order.connect("\\0" + sys.argv[1])
    order.sendall(sys.stdin.buffer.read())
    order.shutdown(socket.SHUT_WR)
    sys.stdout.buffer.write(b"".join(iter(lambda: order.recv(65536), b"")))
"""


class GpuMachine:
    """Use it in a `with` block, which boots it."""

    def __init__(self) -> None:
        self._folder = folders.make("gpu-host", folders.LARGE)
        self.shared = folders.make("shared", folders.LARGE)
        self.shared.chmod(0o755)
        self._machine = Machine(self._folder, self.shared)

    def __enter__(self) -> GpuMachine:
        try:
            self._machine.__enter__()
        except BaseException:
            self._remove()
            raise
        self.type(INSTALL)
        self._make_gpus()
        return self

    def __exit__(self, *exc: object) -> None:
        self._machine.__exit__(*exc)
        self._remove()

    def type(self, script: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Have root's shell in the machine run *script*."""
        return self._machine.type(script, check)

    @property
    def written(self) -> Path:
        """The folder of what it has written on the file system that it shares with this machine."""
        return self._folder / "written"

    @property
    def leader(self) -> str:
        """The PID of its first process."""
        return self._machine._leader()

    @property
    def bus(self) -> str:
        """The address of its system bus, for programs outside."""
        root = Path("/proc", self.leader, "root")
        return f"unix:path={root / 'run/dbus/system_bus_socket'}"

    @property
    def journal(self) -> tuple[str, ...]:
        """The command that reads its journal."""
        return ("nsenter", f"--target={self.leader}", "--mount", "--root", "journalctl")

    @contextmanager
    def network(self) -> Iterator[None]:
        """Run the block, and threads that it starts, in the machine's network."""
        with self._machine.network():
            yield

    def configure(self, more: str = "") -> None:
        """Install the configuration of the monitor."""
        for name, text, group in (
            ("gsaas-monitor.conf", CONFIGURATION + more, "gsaas-monitor"),
            ("gpu-host.toml", INVENTORY, "gsaas"),
        ):
            self.type(
                f"install -m 0640 -o root -g {group} /dev/stdin /etc/gsaas/{name} <<'END'\n{text}\nEND"
            )

    def units(self) -> list[str]:
        """Return the names of the units of daemons that systemd has loaded."""
        listed = self.type("systemctl list-units --all --plain --no-legend 'gsaas-daemon-*'").stdout
        return [line.split()[0] for line in listed.splitlines()]

    def show(self, unit: str, field: str) -> str:
        """Return a property of a unit, as systemd has it."""
        return self._machine.show(unit, field)

    def processes(self, unit: str) -> set[int]:
        """Return the PIDs, as the machine has them, of the processes in the control group of a unit."""
        group = self.show(unit, "ControlGroup")
        found = self.type(f"cat /sys/fs/cgroup{group or '/none'}/cgroup.procs", check=False).stdout
        return {int(pid) for pid in found.split()}

    def order(self, name: str, program: str) -> str:
        """Have the hostile daemon *name* run *program*; return what that prints, or its error."""
        done = subprocess.run(
            ["nsenter", f"--target={self.leader}", "--net", "/usr/bin/python3", "-c", ORDER, name],
            input=program,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def answer_to(self, unit: str, port: int) -> str:
        """Return what root, as a process of *unit*, receives at *port*, or the name of the error."""
        root = Path("/proc", str(self.leader), "root")
        procs = f"{root}/sys/fs/cgroup{self.show(unit, 'ControlGroup')}/cgroup.procs"
        join = 'echo $$ >"$0"; exec "$@"'
        words = ("nsenter", f"--target={self.leader}", "--net", "/usr/bin/python3", "-c", CONNECT)
        done = subprocess.run(
            ["sh", "-euc", join, procs, *words, str(port)],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def answer(self, port: int, address: str = "127.0.0.1") -> Any:
        """Return what root in the machine receives at *port*, or the name of the error."""
        program = (
            "import socket, sys\n"
            f"try: print(socket.create_connection(('{address}', {port}), 60).recv(99).decode())\n"
            "except OSError as error: print(type(error).__name__)\n"
        )
        return self.type(f"/usr/bin/python3 -c \"$(cat <<'END'\n{program}\nEND\n)\"").stdout.strip()

    def _make_gpus(self) -> None:
        lines = []
        for minor, (uuid, (node, bus, (major, number))) in enumerate(GPUS.items()):
            folder = f"/opt/driver/nvidia/gpus/{bus}"
            text = f"GPU UUID: \t {uuid}\\nDevice Minor: \t {minor}\\n"
            lines += [
                f"mknod -m 0666 /dev/{node} c {major} {number}",
                f"mkdir -p {folder}",
                f"printf '{text}' >'{folder}/information'",
            ]
        self.type("\n".join(lines))

    def _remove(self) -> None:
        shutil.rmtree(self._folder)
        shutil.rmtree(self.shared)
