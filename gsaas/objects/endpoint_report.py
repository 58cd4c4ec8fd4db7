"""What an endpoint says about itself, in values that travel as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class BindingReport:
    """One port: is its binding in the kernel, and what did the VM try in vain."""

    installed: bool
    unmapped: int = 0
    """Connections asked of masked addresses without a mapping; each was answered with a reset."""
    refused: int = 0
    """Packets dropped at the tap: a source that is not the port's address, or not TCP."""
    seconds: float | None = None
    """How long it took to install, from when its tap was there; None while it is not installed."""


@dataclass(frozen=True)
class EndpointReport:
    """Ports, and what an operator has to mend (empty when all is well)."""

    host: str
    bindings: Mapping[str, BindingReport] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    gpu_address: str | None = None
    """IPv4 address of this host on the GPU network, from which daemons see its VMs come."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "bindings": {
                port_id: {
                    "installed": binding.installed,
                    "seconds": binding.seconds,
                    "dropped_packets": {
                        "unmapped": binding.unmapped,
                        "refused": binding.refused,
                    },
                }
                for port_id, binding in self.bindings.items()
            },
            "problems": list(self.problems),
            "gpu_address": self.gpu_address,
        }
