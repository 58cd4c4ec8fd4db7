# SPDX-License-Identifier: Apache-2.0
"""Which TCP ports of this network namespace have a listener."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def has_listener(tables: str, port: int) -> bool:
    """Return whether *tables*, the text of /proc/net/tcp and /proc/net/tcp6, lists a listener on *port*."""
    for line in tables.splitlines():
        fields = line.split()
        # State 0A is TCP_LISTEN.
        if len(fields) > 3 and fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
            return True
    return False


def is_listening(port: int) -> bool:
    """Return whether any process listens on *port* in the network namespace of this thread."""
    tables = ""
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            tables += Path(f"/proc/thread-self/net/{name}").read_text(encoding="ascii")
    return has_listener(tables, port)
