# SPDX-License-Identifier: Apache-2.0
"""Which TCP ports of this network namespace have a listener."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

from gsaas.netlink import sock_diag


def is_listening(port: int) -> bool:
    """Return whether any process listens on *port* in the network namespace of this thread."""
    try:
        with sock_diag.open_socket() as netlink:
            return any(
                list(sock_diag.identities(netlink, family, sock_diag.LISTENING, port))
                for family in (socket.AF_INET, socket.AF_INET6)
            )
    except OSError:  # a kernel without sockets' diagnosis, or a process that may not use netlink
        return has_listener(_tables(), port)


def has_listener(tables: str, port: int) -> bool:
    """Return whether *tables*, the text of /proc/net/tcp and /proc/net/tcp6, lists a listener on *port*."""
    for line in tables.splitlines():
        fields = line.split()
        # State 0A is TCP_LISTEN.
        if len(fields) > 3 and fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
            return True
    return False


def _tables() -> str:
    tables = ""
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            tables += Path(f"/proc/thread-self/net/{name}").read_text(encoding="ascii")
    return tables
