# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that are told where to listen."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

ADDRESS = "127.0.0.1"
BETWEEN_DAEMONS = range(1024, 8308), range(8500, 14833), range(15000, 20000)
"""Without the ports of the middlewares' daemons: the fence of a GPU host that runs here refuses connections to them."""
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> range:
    """Return *count* free ports, one after the other.

    They are below those that the kernel gives to connections, so that none takes one while its server is away.
    """
    below = int(EPHEMERAL.read_text().split()[0])
    ranges = [range(one.start, min(one.stop, below) - count + 1) for one in BETWEEN_DAEMONS]
    firsts = [first for one in ranges for first in one]
    while True:
        first = random.choice(firsts)  # noqa: S311 (no secret)
        found = range(first, first + count)
        with suppress(OSError), ExitStack() as bound:
            for port in found:
                bound.enter_context(socket.create_server((ADDRESS, port)))
            return found
