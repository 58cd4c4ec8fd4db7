# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that are told where to listen."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

ADDRESS = "127.0.0.1"
FIRST = 1024
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> range:
    """Return *count* free ports, one after the other.

    They are below those that the kernel gives to connections, so that none takes one while its server is away.
    """
    below = int(EPHEMERAL.read_text().split()[0])
    while True:
        first = random.randrange(FIRST, below - count + 1)  # noqa: S311 (no secret)
        found = range(first, first + count)
        with suppress(OSError), ExitStack() as bound:
            for port in found:
                bound.enter_context(socket.create_server((ADDRESS, port)))
            return found
