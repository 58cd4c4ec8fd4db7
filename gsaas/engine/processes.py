"""Names of engine processes, as the database notes them on the leases they drive.

A name says enough to tell, on the same machine, that its process is gone. So an engine that was killed and started
again takes up its leases at once; engines elsewhere wait until its time is over.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

_SIGN = " process "


def own() -> str:
    """The name of this process: host, process namespace, process id, and when it started."""
    return f"{_here()}{_SIGN}{os.getpid()} {_started(os.getpid())}"


def is_gone(name: str) -> bool:
    """True if *name* was a process of this machine that runs no more; False if it runs, or ran elsewhere."""
    here, _, process = name.partition(_SIGN)
    pid, _, started = process.partition(" ")
    return here == _here() and _started(int(pid)) != started


def _here() -> str:
    return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115


def _started(pid: int) -> str | None:
    """Clock ticks from the machine's start to the process's; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return stat.rpartition(")")[2].split()[19]  # field 22; the program's name may hold spaces
