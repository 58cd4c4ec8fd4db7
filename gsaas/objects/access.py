"""How the consumer of a lease reaches its GPUs: decided with the claim, from where both are.

1. A VM that GSaaS boots has masked addresses; the RODVR endpoint of its compute host translates them.
2. A consumer on the very host that has all its GPUs uses them natively, where the operator allows it.
3. A consumer on a host with a RODVR endpoint has masked addresses of that host, for itself alone.
4. Everybody else is told the real addresses.

Values in, a value out.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass


class Access(enum.StrEnum):
    """The ways."""

    MASKED = "masked"
    DIRECT = "direct"
    NATIVE = "native"


@dataclass(frozen=True)
class Consumer:
    """Who uses a lease that stands alone, as far as its caller says."""

    host: str | None = None
    """The host on which it runs."""
    has_endpoint: bool = False
    """That host has a RODVR endpoint."""


def choose(consumer: Consumer, gpu_hosts: Collection[str], *, native: bool) -> Access:
    """Return the way for a lease that stands alone and whose GPUs are on *gpu_hosts*."""
    if native and set(gpu_hosts) == {consumer.host}:
        return Access.NATIVE
    if consumer.has_endpoint:
        return Access.MASKED
    return Access.DIRECT
