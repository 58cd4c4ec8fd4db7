# SPDX-License-Identifier: Apache-2.0
"""The control group (version 2) by which the fence tells the monitor from every other program of its host.

A program cannot leave its control group without the rights of root, while many programs may have the same user.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from gsaas.gpu_host.fence.layout import ControlGroup


class NoControlGroup(OSError):
    """This process has no control group of its own; the message says what to do."""


def own() -> ControlGroup:
    """Return the control group of this process; raises `NoControlGroup`."""
    # Names of mounts and groups may be any bytes.
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    groups = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape")
    folder, level = locate(mounts, groups)
    try:
        return ControlGroup(folder.stat().st_ino, level)
    except OSError as error:
        raise NoControlGroup(
            f"the control group {folder} cannot be read: {error.strerror}"
        ) from error


def locate(mountinfo: str, cgroup: str) -> tuple[Path, int]:
    """Return folder and level of a process's control group, from two files of its /proc; raises `NoControlGroup`."""
    path = next(
        (line.removeprefix("0::") for line in cgroup.split("\n") if line.startswith("0::")), None
    )
    if path is None:
        raise NoControlGroup("this host has no control groups of version 2")
    names = PurePosixPath(path).parts[1:]
    if not names or names[0] == "..":
        raise NoControlGroup(
            "the monitor has no control group of its own, by which the fence could admit it: start it as a unit of "
            "systemd, or in a container with the host's namespace of control groups (--cgroupns=host)"
        )
    # The kernel escapes spaces and newlines in names, and no other character at which Python would split.
    for line in mountinfo.split("\n"):
        left, _, right = line.partition(" - ")
        if not right.startswith("cgroup2 "):
            continue
        root, mount_point = left.split(" ")[3:5]
        if PurePosixPath(path).is_relative_to(root):
            return Path(mount_point) / PurePosixPath(path).relative_to(root), len(names)
    raise NoControlGroup(f"no control groups of version 2 are mounted that contain {path}")
