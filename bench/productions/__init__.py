# SPDX-License-Identifier: Apache-2.0
"""What the benchmark `production` measures on: the OpenStack of the test bed, with GSaaS as an operator deploys it."""

from __future__ import annotations

import socket


def free_ports(number: int) -> list[int]:
    """Return TCP ports of loopback on which nothing listens."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [int(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
