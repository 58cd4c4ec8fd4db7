# SPDX-License-Identifier: Apache-2.0
"""What a RODVR endpoint reports, as values with a JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gsaas.objects.refusals import Refusals


@dataclass(frozen=True)
class BindingReport:
    """One binding: whether it is in the kernel, and what was refused to its VM or its programs."""

    installed: bool
    unmapped: int = 0
    """Connections to masked addresses without a mapping; each was answered with a reset."""
    refused: int = 0
    """Packets dropped at the tap: their source is no address of the port, or they are no TCP, or fragments."""
    seconds: float | None = None
    """How long it took to install, in seconds, from when its tap was there; None while it is not installed."""


@dataclass(frozen=True)
class Traffic:
    """What one VM and its daemons have sent each other since its binding was installed, and its open connections.

    Bytes are those of IPv4 packets, headers included.
    """

    sent: int
    """Bytes from the VM to masked addresses."""
    received: int
    """Bytes from daemons to the VM."""
    connections: int
    """Open connections of the VM to daemons."""

    def to_dict(self) -> dict[str, int]:
        """Return the traffic in JSON's types."""
        return {"sent": self.sent, "received": self.received, "connections": self.connections}


@dataclass(frozen=True)
class ConntrackLevel:
    """How full the kernel's table of connections is, which everything on the host shares."""

    entries: int
    limit: int
    """net.netfilter.nf_conntrack_max; 0 stands for no limit."""

    @property
    def ratio(self) -> float:
        """The part of the table that is taken, 0 to 1."""
        return self.entries / self.limit if self.limit else 0.0

    def to_dict(self) -> dict[str, int]:
        """Return the level in JSON's types."""
        return {"entries": self.entries, "limit": self.limit}


@dataclass(frozen=True)
class EndpointReport:
    """The bindings of a host by port id, and the problems that an operator has to solve (empty if there are none)."""

    host: str
    bindings: Mapping[str, BindingReport] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    gpu_address: str | None = None
    """IPv4 address of this host on the GPU network: the source of its VMs' connections, as daemons see it."""
    conntrack: ConntrackLevel | None = None
    """None in reports on single bindings, and while the kernel tracks no connections."""
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    """The traffic of VMs by port id, in reports that contain it."""
    refusals: Mapping[str, Refusals] = field(default_factory=dict)
    """What was refused of late, by port id, in reports on all bindings."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report in JSON's types; a binding's counters are under `dropped_packets`."""
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
            "conntrack": self.conntrack.to_dict() if self.conntrack else None,
            # Beside the bindings: engines of the release before refuse a binding that has more than they know.
            "traffic": {port_id: traffic.to_dict() for port_id, traffic in self.traffic.items()},
            "refusals": {port_id: each.to_dict() for port_id, each in self.refusals.items()},
        }
