"""Groups of processes that can be found and killed as a whole, children and orphans included.

1. A daemon's first process enters its group before it becomes the daemon, so whatever it starts is in it, too. Children
   that outlive their parent, or leave its session, stay in it.
2. Groups are control groups: of version 2 where there are any, else a hierarchy of version 1. They have names on disk,
   so they are found again after a restart of ours.
3. Where we may make neither, a variable in the environment marks a group's processes. Children inherit it; a program
   that clears its environment escapes, so this is second best.

The paths follow the kernel's cgroup-v2 and cgroup-v1 documents; `cgroup.kill` is there since Linux 5.14.
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
"""The variable that marks processes where there are no control groups."""
_V1 = ("pids", "freezer", "name=systemd", "memory", "cpu")
"""Hierarchies of version 1, of which any will do."""


class Groups(abc.ABC):
    """Groups by key. Nothing here raises because a process ended meanwhile."""

    procs: str | None = None
    """Template of the file, with {key}, in which a process writes its number to join a group; None: none is needed."""

    @abc.abstractmethod
    def make(self, key: str) -> None:
        """Have an empty group, or the one that is there; raises `OSError`."""

    @abc.abstractmethod
    def names(self) -> list[str]:
        """Every group that is there."""

    @abc.abstractmethod
    def members(self, key: str) -> set[int]:
        """The processes of a group that live (zombies do not)."""

    @abc.abstractmethod
    def remove(self, key: str) -> None:
        """Remove a group without members."""

    @abc.abstractmethod
    def close(self) -> None:
        """Remove what holds the groups together, if there are none."""

    def mark(self, key: str) -> dict[str, str]:
        """What the environment of a group's first process must have."""
        return {}

    def signal(self, key: str, number: int) -> None:
        """Send a signal to every process of a group."""
        for pid in self.members(key):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, key: str) -> None:
        """End every process of a group now. Those that multiply meanwhile need another call."""
        self.signal(key, signal.SIGKILL)


class ControlGroups(Groups):
    """Control groups below one folder of a hierarchy."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.procs = f"{root}/{{key}}/cgroup.procs"

    def make(self, key: str) -> None:
        (self._root / key).mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        return sorted(path.name for path in self._root.glob("*/"))

    def members(self, key: str) -> set[int]:
        try:
            text = (self._root / key / "cgroup.procs").read_text(encoding="ascii")
        except FileNotFoundError:
            return set()
        # A zombie of ours stays listed until it is waited for. It holds nothing any more.
        return {pid for pid in map(int, text.split()) if _lives(pid)}

    def kill(self, key: str) -> None:
        try:
            (self._root / key / "cgroup.kill").write_text("1", encoding="ascii")
        except (FileNotFoundError, PermissionError):  # version 1, or before Linux 5.14
            super().kill(key)

    def remove(self, key: str) -> None:
        with suppress(FileNotFoundError):
            (self._root / key).rmdir()

    def close(self) -> None:
        with suppress(OSError):  # there are some
            self._root.rmdir()


class MarkedProcesses(Groups):
    """Processes that carry a group's mark in their environment."""

    def __init__(self, instance: str) -> None:
        self._prefix = f"{MARK}={instance}/".encode()
        self._instance = instance

    def make(self, key: str) -> None:
        """There is nothing to make."""

    def mark(self, key: str) -> dict[str, str]:
        return {MARK: f"{self._instance}/{key}"}

    def names(self) -> list[str]:
        return sorted({key for _, key in self._marked()})

    def members(self, key: str) -> set[int]:
        return {pid for pid, other in self._marked() if other == key and _lives(pid)}

    def remove(self, key: str) -> None:
        """There is nothing to remove."""

    def close(self) -> None:
        """There is nothing to remove here, either."""

    def _marked(self) -> Iterator[tuple[int, str]]:
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:  # it ended, or is none of our business
                continue
            for variable in variables:
                if variable.startswith(self._prefix):
                    yield int(folder.name), os.fsdecode(variable.removeprefix(self._prefix))


def groups(state_dir: Path) -> Groups:
    """The best groups that we may make here, for daemons that are noted in *state_dir*."""
    instance = "gsaas-" + hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:12]
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    own = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    for parent in candidates(mounts, own):
        root = Path(parent) / instance
        try:
            root.mkdir(exist_ok=True)
            probe = root / "probe"
            probe.mkdir(exist_ok=True)
            probe.rmdir()
        except OSError as error:
            LOG.debug("no control groups below %s: %s", parent, error)
            continue
        return ControlGroups(root)
    LOG.warning(
        "control groups cannot be made here: daemons are told apart by their environment; give the "
        "monitor's unit Delegate=yes"
    )
    return MarkedProcesses(instance)


def candidates(mountinfo: str, own: str) -> list[str]:
    """Folders in which a process may make control groups, best first, from two files of /proc/self.

    *mountinfo* lists what is mounted, *own* (`cgroup`) where the process is in each hierarchy.
    """
    places = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            places[controller] = path
    found: dict[int, str] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        root, mount_point = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2":
            rank, place = 0, places.get("")
        elif kind == "cgroup":
            usable = [name for name in _V1 if name in options.split(",") and name in places]
            if not usable:
                continue
            rank, place = 1 + _V1.index(usable[0]), places[usable[0]]
        else:
            continue
        if place is None:
            continue
        relative = os.path.relpath(place, root)
        if not relative.startswith(".."):
            found.setdefault(rank, os.path.normpath(f"{mount_point}/{relative}"))
    return [found[rank] for rank in sorted(found)]


def started(pid: int) -> str | None:
    """When a process was started, in the kernel's own count; with the number it names a process for ever.

    None if it ended, zombies included.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return None if fields[0] in "ZX" else fields[19]


def _lives(pid: int) -> bool:
    return started(pid) is not None


def listeners(tables: str, port: int) -> bool:
    """Does anybody listen on *port*? *tables* are /proc/net/tcp and /proc/net/tcp6, together."""
    for line in tables.splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
            return True
    return False


def listening(port: int) -> bool:
    """Does anybody listen on *port* in this network namespace?"""
    tables = ""
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            tables += Path(f"/proc/self/net/{name}").read_text(encoding="ascii")
    return listeners(tables, port)
