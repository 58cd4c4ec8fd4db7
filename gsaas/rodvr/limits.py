# SPDX-License-Identifier: Apache-2.0
"""How much one VM may take of what its host shares among all VMs: connection tracking, ports, daemons."""

from __future__ import annotations

from dataclasses import dataclass

_BURST_SECONDS = 10


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits for one VM port; 0 stands for no limit."""

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
