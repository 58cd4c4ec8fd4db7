# SPDX-License-Identifier: Apache-2.0
"""What the processes of a daemon have used of this host's processors and memory, as the kernel counts it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gsaas.objects.daemon import DaemonUsage

CONTROL_GROUPS = Path("/sys/fs/cgroup")
_MIB = 1 << 20


def of_control_group(path: str) -> DaemonUsage | None:
    """Return what all processes in a control group (version 2) have used; None if that is not counted.

    *path* is that of systemd, such as /gsaas-daemons.slice/gsaas-daemon-1.service. Without the controller of memory,
    it is what the processes have in memory.
    """
    folder = CONTROL_GROUPS / path.lstrip("/")
    try:
        counters = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        seconds = int(counters["usage_usec"]) / 1e6
        counter = folder / "memory.current"
        if counter.exists():
            return DaemonUsage(seconds, int(counter.read_text()) // _MIB)
        found = map(_of_process, map(int, (folder / "cgroup.procs").read_text().split()))
        return DaemonUsage(seconds, sum(one.memory_mb for one in found if one is not None))
    except (OSError, KeyError, ValueError):
        return None


def of_processes(pid: int) -> DaemonUsage | None:
    """Return what a process and those below it have used; None if it has ended.

    Of those that have ended it counts the time if their parent has waited for them.
    """
    found = [usage for one in _with_children(pid) if (usage := _of_process(one)) is not None]
    if not found:
        return None
    return DaemonUsage(sum(one.cpu_seconds for one in found), sum(one.memory_mb for one in found))


def _with_children(pid: int) -> list[int]:
    pids = [pid]
    for one in pids:
        with suppress(OSError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                pids += map(int, (thread / "children").read_text().split())
    return pids


def _of_process(pid: int) -> DaemonUsage | None:
    try:
        # The name of the program, in brackets, may contain anything (proc_pid_stat(5)).
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    ticks = sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    pages = int(fields[21])  # rss
    return DaemonUsage(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") // _MIB)
