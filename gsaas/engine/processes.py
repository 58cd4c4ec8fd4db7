# SPDX-License-Identifier: Apache-2.0
"""Names of engine processes, as the database records them on the leases that they own.

A name contains what it takes to find out, on the same machine, that its process has ended. So an engine that was killed
and started again owns its leases again at once; engines elsewhere wait until its ownership has run out.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

_SEPARATOR = " process "


def own_name() -> str:
    """Return the name of this process: host, process namespace, process id, and when it started."""
    return f"{_here()}{_SEPARATOR}{os.getpid()} {_started(os.getpid())}"


def is_gone(name: str) -> bool:
    """Return whether *name* was a process of this machine that has ended; False for a process elsewhere."""
    here, _, process = name.partition(_SEPARATOR)
    pid, _, started = process.partition(" ")
    return here == _here() and _started(int(pid)) != started


def _here() -> str:
    """Return the host and the process namespace, within which process ids are unique."""
    return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115


def _started(pid: int) -> str | None:
    """Return the clock ticks from the boot of the machine to the start of a process; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Field 22 of proc(5). Fields are counted from behind the program's name, which may contain spaces.
    return stat.rpartition(")")[2].split()[19]
