# SPDX-License-Identifier: Apache-2.0
"""What the endpoint of a host is configured with, as values."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MASKED_PREFIX = "169.254.71.0/24"
IDENTITY_NETWORK = "240.71.0.0/16"
LOCAL_PREFIX = "169.254.72.0/21"
_METADATA = ipaddress.IPv4Address("169.254.169.254")
_BURST_SECONDS = 10


class Networks:
    """RODVR's own networks: masked addresses for VMs and for programs of the host, and identities of VM ports.

    Raises `ValueError` if one is not an IPv4 network, if masked addresses cover the metadata service, or if the two
    networks of masked addresses overlap.
    """

    def __init__(
        self,
        masked: str = MASKED_PREFIX,
        identities: str = IDENTITY_NETWORK,
        local: str = LOCAL_PREFIX,
    ) -> None:
        self.masked = ipaddress.IPv4Network(masked)
        self.identities = ipaddress.IPv4Network(identities)
        self.local = ipaddress.IPv4Network(local)
        if _METADATA in self.masked:
            raise ValueError(f"the masked prefix {masked} covers the metadata service")
        if _METADATA in self.local:
            raise ValueError(f"the local prefix {local} covers the metadata service")
        if self.local.overlaps(self.masked):
            raise ValueError(f"the local prefix {local} and the masked prefix {masked} overlap")

    def __iter__(self) -> Iterator[ipaddress.IPv4Network]:
        return iter((self.masked, self.identities, self.local))


@dataclass(frozen=True)
class ConnectionLimits:
    """How much one VM port may take of what its host shares among all VMs; 0 stands for no limit."""

    per_vm: int = 4096
    """Connections at a time, to all daemons together."""
    per_daemon: int = 64
    """Connections at a time to one daemon, whichever of the VM's masked addresses lead there."""
    new_per_second: int = 100
    """New connections per second, on average; up to `burst` of them at once."""

    @property
    def burst(self) -> int:
        """New connections that may come at once after a pause: a parallel program opens all of its own together."""
        return self.new_per_second * _BURST_SECONDS

    def __str__(self) -> str:
        return f"{self.per_vm}/{self.per_daemon}/{self.new_per_second}"


USUAL = ConnectionLimits()
"""The defaults of the options."""


@dataclass(frozen=True)
class DatapathConfig:
    """What the datapath of a host depends on, apart from the bindings."""

    gpu_device: str
    """The name of the GPU NIC."""
    netns: str | None = None
    """The name of a network namespace, for simulated hosts; None for that of this process."""
    networks: Networks = field(default_factory=Networks)
    limits: ConnectionLimits = USUAL
    """For each VM port."""
    conntrack_threshold: float = 0.8
    """A table of connections that is filled beyond this, 0 to 1, is a problem."""
    protected: bool = True
    """Use table owners, where the kernel has them: Linux 6.9 and later."""
    filtered_cuts: bool = True
    """Delete connections by filter, where the kernel can: Linux 6.8 and later."""

    @classmethod
    def of(cls, options: Any, gpu_device: str, netns: str | None = None) -> DatapathConfig:
        """Return what the *options* of [rodvr] say; `ValueError` if their networks cannot be used."""
        limits = ConnectionLimits(
            options.connections_per_vm,
            options.connections_per_daemon,
            options.new_connections_per_second,
        )
        networks = Networks(options.masked_prefix, options.identity_network, options.local_prefix)
        return cls(gpu_device, netns, networks, limits, options.conntrack_threshold)


@dataclass(frozen=True)
class Periods:
    """How long an endpoint waits, in seconds."""

    audit: float = 30.0
    """Between two comparisons of the kernel with what it should contain."""
    retry: float = 5.0
    """Before it tries again what failed."""
    grace: float = 60.0
    """For which the chain of a removed binding stays."""

    @classmethod
    def of(cls, options: Any) -> Periods:
        """Return what the *options* of [rodvr] say."""
        return cls(options.audit_interval, options.retry_interval, options.grace)
