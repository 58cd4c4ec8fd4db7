# SPDX-License-Identifier: Apache-2.0
"""What a host has refused to one consumer of late, as a value with a JSON form, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Refusals:
    """Packets that were refused to a VM, or connections to programs of a host."""

    seconds: int
    """Since when, in seconds before the report."""
    unmapped: int = 0
    """Connections to masked addresses that the lease does not have; each was answered with a reset."""
    foreign: int = 0
    """Packets whose source is no address of the VM's port."""
    not_tcp: int = 0
    fragments: int = 0
    source: str | None = None
    """One of the sources that are no address of the port, if it is known."""

    def to_dict(self) -> dict[str, Any]:
        """Return the refusals in JSON's types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Refusals:
        """Undo `to_dict`, of a report that was checked. Fields that this release does not know are left out."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})

    def sentences(self, addresses: Sequence[str]) -> list[str]:
        """Return what was refused and what to do, for people; *addresses* are those of the VM's port, if it has one."""
        since = f"in the last {_duration(self.seconds)}"
        found = []
        if self.foreign:
            sent_from = f"from {self.source}" if self.source else "from addresses"
            own = f"which the VM's port does not have (it has {', '.join(addresses)})"
            found.append(
                f"packets that the VM sent to masked addresses {sent_from}, {own}: {self.foreign} dropped {since}; "
                "let the VM use an address of its port (ip route replace MASKED_PREFIX dev INTERFACE src ADDRESS), or "
                "give the port the address (openstack port set --fixed-ip)"
            )
        if self.not_tcp:
            found.append(
                "packets of the VM to masked addresses that are not TCP, such as those of ping: "
                f"{self.not_tcp} dropped {since}; daemons are reached by TCP only"
            )
        if self.fragments:
            found.append(
                f"fragments of packets of the VM to masked addresses: {self.fragments} dropped {since}; use an MTU "
                "in the VM that its network carries"
            )
        if self.unmapped:
            found.append(
                f"connections to masked addresses or ports that the lease does not have: {self.unmapped} refused "
                f"{since}; use the addresses in the lease's environment (gsaas env)"
            )
        return found


def _duration(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
