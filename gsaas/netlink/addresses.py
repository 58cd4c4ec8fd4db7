# SPDX-License-Identifier: Apache-2.0
"""The addresses of this network namespace's interfaces."""

from __future__ import annotations

import socket

from pyroute2 import IPRoute


def interface_of(address: str) -> str | None:
    """Return the interface that has this IPv4 address; None if none has it."""
    with IPRoute() as route:
        found = next(iter(route.get_addr(family=socket.AF_INET, local=address)), None)
    return None if found is None else socket.if_indextoname(found["index"])
