# SPDX-License-Identifier: Apache-2.0
"""Tracks all processes of a daemon, children and orphans included, so that they are found and killed as a unit.

1. The first process of a daemon is tracked before it becomes the daemon, so all its children are tracked, too, also
   those that outlive their parent or leave its session.
2. Processes are tracked by control groups: version 2 where the host has it, else a hierarchy of version 1. Control
   groups have names in a file system, so a restarted monitor finds them again.
3. Where the monitor may make neither, a variable in the environment marks a daemon's processes. Children inherit it; a
   program that clears its environment escapes, so this is second best.

The paths follow the kernel's cgroup-v2 and cgroup-v1 documents; `cgroup.kill` exists since Linux 5.14.
"""

from __future__ import annotations

import abc
import hashlib
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LOG = logging.getLogger(__name__)

MARK = "GSAAS_DAEMON"
"""The environment variable that marks processes where there are no control groups."""
_V1 = ("pids", "freezer", "name=systemd", "memory", "cpu")
"""Hierarchies of version 1, any of which will do, best first."""


class ProcessTracker(abc.ABC):
    """Tracks the processes of daemons by key. No method raises because a process ended meanwhile."""

    join_file: str | None = None
    """Path with {key}: a process that writes its PID there is tracked. None: there is nothing to write."""

    @abc.abstractmethod
    def create(self, key: str) -> None:
        """Prepare to track the processes of *key*; does nothing if that is done already. Raises `OSError`."""

    @abc.abstractmethod
    def list_keys(self) -> list[str]:
        """Return all keys that are tracked."""

    @abc.abstractmethod
    def pids(self, key: str) -> set[int]:
        """Return the PIDs of *key*'s processes that live; zombies do not."""

    @abc.abstractmethod
    def remove(self, key: str) -> None:
        """Stop to track a key without processes; raises `OSError` if it has any."""

    @abc.abstractmethod
    def close(self) -> None:
        """Remove what the tracker has made for itself, if no key is tracked."""

    def environment(self, key: str) -> dict[str, str]:
        """Return the variables that the first process of *key* must be started with."""
        return {}

    def signal(self, key: str, number: int) -> None:
        """Send a signal to every process of *key*."""
        for pid in self.pids(key):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, key: str) -> None:
        """End every process of *key* now. Processes that fork meanwhile may need another call."""
        self.signal(key, signal.SIGKILL)


class CgroupTracker(ProcessTracker):
    """Tracks processes by control groups, one for each key, below the folder *root* of a hierarchy."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.join_file = f"{root}/{{key}}/cgroup.procs"

    def create(self, key: str) -> None:
        (self._root / key).mkdir(parents=True, exist_ok=True)

    def list_keys(self) -> list[str]:
        return sorted(path.name for path in self._root.glob("*/"))

    def pids(self, key: str) -> set[int]:
        try:
            text = (self._root / key / "cgroup.procs").read_text(encoding="ascii")
        except FileNotFoundError:
            return set()
        # A zombie child of the monitor is listed until the monitor waits for it; it uses nothing any more.
        return {pid for pid in map(int, text.split()) if _is_alive(pid)}

    def kill(self, key: str) -> None:
        try:
            (self._root / key / "cgroup.kill").write_text("1", encoding="ascii")
        except (FileNotFoundError, PermissionError):  # version 1, or before Linux 5.14
            super().kill(key)

    def remove(self, key: str) -> None:
        with suppress(FileNotFoundError):
            (self._root / key).rmdir()

    def close(self) -> None:
        with suppress(OSError):  # not empty: daemons are left
            self._root.rmdir()


class EnvironmentTracker(ProcessTracker):
    """Tracks processes by a variable in their environment, `MARK`=*instance*/KEY."""

    def __init__(self, instance: str) -> None:
        self._prefix = f"{MARK}={instance}/".encode()
        self._instance = instance

    def create(self, key: str) -> None:
        """Nothing has to be prepared."""

    def environment(self, key: str) -> dict[str, str]:
        return {MARK: f"{self._instance}/{key}"}

    def list_keys(self) -> list[str]:
        return sorted({key for _, key in self._marked()})

    def pids(self, key: str) -> set[int]:
        return {pid for pid, other in self._marked() if other == key and _is_alive(pid)}

    def remove(self, key: str) -> None:
        """There is nothing to remove."""

    def close(self) -> None:
        """There is nothing to remove."""

    def _marked(self) -> Iterator[tuple[int, str]]:
        """Yield PID and key of every marked process of this machine."""
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:  # it ended, or belongs to another user
                continue
            for variable in variables:
                if variable.startswith(self._prefix):
                    yield int(folder.name), os.fsdecode(variable.removeprefix(self._prefix))


def process_tracker(state_dir: Path) -> ProcessTracker:
    """Return the best tracker that this process may use, for the daemons that are recorded in *state_dir*."""
    instance = "gsaas-" + hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:12]
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    own = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    for parent in cgroup_parents(mounts, own):
        root = Path(parent) / instance
        try:
            # Whether control groups may be made here, two levels deep, shows only in an attempt.
            root.mkdir(exist_ok=True)
            probe = root / "probe"
            probe.mkdir(exist_ok=True)
            probe.rmdir()
        except OSError as error:
            LOG.debug("no control groups below %s: %s", parent, error)
            continue
        return CgroupTracker(root)
    LOG.warning(
        "control groups cannot be made here: daemons are identified by their environment, which they can change; "
        "set Delegate=yes in the monitor's systemd unit"
    )
    return EnvironmentTracker(instance)


def cgroup_parents(mountinfo: str, own: str) -> list[str]:
    """Return the folders in which a process may make control groups, best first, from two files of /proc/self.

    *mountinfo* lists what is mounted, *own* (`cgroup`) the process's control group in each hierarchy.
    """
    paths: dict[str, str] = {}
    for line in own.splitlines():
        _, controllers, own_path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = own_path
    found: dict[int, str] = {}
    path: str | None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        root, mount_point = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2":
            rank, path = 0, paths.get("")
        elif kind == "cgroup":
            usable = [name for name in _V1 if name in options.split(",") and name in paths]
            if not usable:
                continue
            rank, path = 1 + _V1.index(usable[0]), paths[usable[0]]
        else:
            continue
        if path is None:
            continue
        # In a container, a mount may show only a part of the hierarchy; the process has to be within it.
        relative = os.path.relpath(path, root)
        if not relative.startswith(".."):
            found.setdefault(rank, os.path.normpath(f"{mount_point}/{relative}"))
    return [found[rank] for rank in sorted(found)]


def start_time(pid: int) -> str | None:
    """Return when a process was started, in clock ticks since boot; None if it ended, zombies included.

    PID and start time together identify a process: the kernel uses PIDs again.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may contain spaces and parentheses
    return None if fields[0] in "ZX" else fields[19]


def _is_alive(pid: int) -> bool:
    return start_time(pid) is not None


def has_listener(tables: str, port: int) -> bool:
    """Return whether *tables*, the text of /proc/net/tcp and /proc/net/tcp6, lists a listener on *port*."""
    for line in tables.splitlines():
        fields = line.split()
        # State 0A is TCP_LISTEN.
        if len(fields) > 3 and fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
            return True
    return False


def is_listening(port: int) -> bool:
    """Return whether any process listens on *port* in this network namespace."""
    tables = ""
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            tables += Path(f"/proc/self/net/{name}").read_text(encoding="ascii")
    return has_listener(tables, port)
