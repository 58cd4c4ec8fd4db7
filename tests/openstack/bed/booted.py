# SPDX-License-Identifier: Apache-2.0
"""Machines with systemd as their first process, for what an operator does to machines.

1. A machine sees what is installed on this one, in an overlay. What it writes stays in a folder of the bed's.
2. It starts no service of this machine's: there are none in it but systemd's own.
3. It is a daemon in a control group and a mount namespace of its own, so that nothing of it outlives it.
4. `up` and `down` take away what somebody left of it.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.openstack.bed import commands, processes, settings
from tests.openstack.bed.errors import BedError

FOLDER = settings.STATE / "booted"
PATIENCE = 240
"""Seconds until a machine is on, or off."""

BOOT = """\
echo $$ >"$1/group/cgroup.procs"
mkdir --parents /run/systemd/nspawn
mount -t tmpfs none /run/systemd/nspawn # it never removes its locks
test -e /sys/fs/cgroup/cgroup.controllers || mount -t cgroup2 none /sys/fs/cgroup # nor groups of version 1
mount -t overlay -o "lowerdir=/,upperdir=$1/written,workdir=$1/work" overlay "$1/root"
shift
exec systemd-nspawn --quiet --boot --register=no --keep-unit --capability=all --system-call-filter=bpf \\
    --link-journal=no --resolv-conf=replace-host --console=pipe --tmpfs=/etc/systemd/system --tmpfs=/etc/init.d "$@"
"""
"""Run with: its folder, and more options. The programs in a machine may do what they may on one of metal.

Without bpf(2) systemd could not enforce `DevicePolicy=`: a unit could open every device.
"""


class Machine:
    """A machine called *name* in the network of *namespace*, or of this machine.

    It begins with a copy of what *like* has written, which is off, or with nothing of its own. *hosts* are lines of its
    /etc/hosts, and the programs in the folder *tools* go before all others. *binds* are folders of this machine, and
    where it sees them.
    """

    def __init__(
        self,
        name: str,
        *,
        namespace: str | None = None,
        like: Machine | None = None,
        hosts: str = "",
        tools: Path | None = None,
        binds: Mapping[Path, str] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._folder = FOLDER / name
        self._like = like
        self._hosts = hosts
        self._tools = tools
        options = [f"--directory={self._folder / 'root'}", f"--machine={name}"]
        options.append(f"--bind={settings.DIR}:{settings.DIR}:norbind")
        options += [f"--bind-ro={folder}:{place}" for folder, place in binds.items()]
        environment = {}
        if namespace:
            options.append(f"--network-namespace-path=/run/netns/{namespace}")
            environment = {"SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"}  # what is its own
        self.daemon = processes.Daemon(
            name=f"booted-{name}",
            command=("unshare", "--mount", "sh", "-euc", BOOT, "boot", self._folder, *options),
            environment=environment,
            ready=self._is_up,
            patience=PATIENCE,
        )

    def start(self) -> None:
        """Boot; `BedError` says why it did not come up."""
        self.prepare()
        processes.ensure(self.daemon)

    def prepare(self) -> None:
        """Make what it boots from, unless it is on."""
        if processes.running(self.daemon.name):
            return
        self.remove()
        for made in ("work", "root"):
            (self._folder / made).mkdir(parents=True)
        etc = self._folder / "written" / "etc"
        if self._like:
            commands.run("cp", "--archive", self._like._folder / "written", self._folder)
        else:
            etc.mkdir(parents=True)
        own = {
            "hosts": f"127.0.0.1 localhost\n{self._hosts}",
            "hostname": f"{self.name}\n",
            # Where there is none, systemd would enable whatever is installed.
            "machine-id": f"{secrets.token_hex(16)}\n",
        }
        for name, text in own.items():
            (etc / name).write_text(text)
        (self._folder / "group").symlink_to(add_group(f"gsaas-booted-{self.name}"))

    def stop(self) -> None:
        """Pull its plug; what it wrote stays."""
        pull(self._folder)

    def remove(self) -> None:
        """Pull its plug, and forget what it wrote."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def type(self, script: str, variables: Mapping[str, str] | None = None) -> str:
        """Have root's shell run *script*, and return what it prints; `BedError` if a line of it fails."""
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        environment = {
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PATH": f"{self._tools}:{path}" if self._tools else path,
            # How packages are to be found is said on this machine.
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
            **(variables or {}),
        }
        try:
            return self._run("bash", "-euo", "pipefail", "-c", script, env=environment)
        except BedError as error:
            journal = self._run("journalctl", "--no-pager", "--lines=20")
            raise BedError(f"{error}\nThe journal of {self.name} ends with:\n{journal}") from None

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Have a file with *text*."""
        self.type(f"install -D -m {mode:o} /dev/stdin {path} <<'GSAAS'\n{text}\nGSAAS")

    def unit(self, name: str, field: str) -> str:
        """What systemd says of a unit."""
        return self.type(f"systemctl show -P {field} {name}").strip()

    def _run(self, *command: str, env: Mapping[str, str] | None = None) -> str:
        spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root")
        enter = ("nsenter", f"--target={self._leader()}", *spaces)
        return commands.run(*enter, "env", "--chdir=/root", *command, env=env)

    def _is_up(self) -> bool:
        # A machine without hardware may well be degraded.
        try:
            said = self._run("sh", "-c", "systemctl is-system-running || true")
        except BedError:
            return False
        return said.strip() in ("running", "degraded")

    def _leader(self) -> int:
        """The machine's first process."""
        record = processes.running(self.daemon.name)
        if record is None:
            raise BedError(f"{self.name} is off")
        return int(commands.run("pgrep", "--parent", str(record.pid)).split()[0])


def remove() -> None:
    """Pull the plug of every machine, and forget what it wrote."""
    for group in FOLDER.glob("*/group"):
        pull(group.parent)
    shutil.rmtree(FOLDER, ignore_errors=True)
    processes.forget()


def pull(folder: Path) -> None:
    """End the machine in *folder* and all that runs in it."""
    group = (folder / "group").resolve()
    if not group.exists():
        return
    (group / "cgroup.kill").write_text("1")
    processes.wait_until(lambda: _is_empty(group), PATIENCE, f"{folder.name} is off")
    for each in sorted(group.glob("**/"), reverse=True):
        each.rmdir()


def _is_empty(group: Path) -> bool:
    return "populated 0" in (group / "cgroup.events").read_text()


def add_group(name: str) -> Path:
    """Make a control group of version 2 below the one that we are in."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found = [line.split()[4] for line in mounts if " - cgroup2 " in line]
    if not found:
        raise BedError("there are no control groups of version 2 here")
    ours = Path("/proc/self/cgroup").read_text().splitlines()
    place = next(line.removeprefix("0::/") for line in ours if line.startswith("0::"))
    group = Path(found[0]) / place / name
    try:
        group.mkdir(exist_ok=True)
    except OSError as error:
        raise BedError(f"no control group can be made here: {error}") from None
    return group
