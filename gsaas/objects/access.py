# SPDX-License-Identifier: Apache-2.0
"""How the consumer of a lease reaches its GPUs. The claim decides it, from the hosts of both.

1. A VM that GSaaS boots uses masked addresses; the RODVR endpoint of its compute host translates them.
2. A consumer on the host that has all GPUs of the lease uses them natively, if the operator allows it.
3. A consumer on a host with a RODVR endpoint uses masked addresses of that host, which no other consumer there uses.
4. Any other consumer uses the real addresses.

Pure: no I/O.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass


class Access(enum.StrEnum):
    """How a consumer reaches the GPUs of its lease."""

    MASKED = "masked"
    """At masked addresses, which a RODVR endpoint translates."""
    DIRECT = "direct"
    """At the real addresses of the daemons on the GPU network."""
    NATIVE = "native"
    """As devices of its own host, without middleware."""


@dataclass(frozen=True)
class Consumer:
    """The consumer of a lease without a server, as far as the caller describes it."""

    host: str | None = None
    """The host on which it runs; None if unknown."""
    has_endpoint: bool = False
    """Whether that host has a RODVR endpoint."""


def choose(consumer: Consumer, gpu_hosts: Collection[str], *, native: bool) -> Access:
    """Return how *consumer* reaches the GPUs of its lease, which are on *gpu_hosts*.

    *native* is whether the operator allows native use.
    """
    if native and set(gpu_hosts) == {consumer.host}:
        return Access.NATIVE
    if consumer.has_endpoint:
        return Access.MASKED
    return Access.DIRECT
