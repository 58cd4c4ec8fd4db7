# SPDX-License-Identifier: Apache-2.0
"""What the rules of a fence depend on, and which programs may listen at its ports. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

Range = tuple[int, int]
"""First and last TCP port, both included."""

VERSION = 4
"""Part of the table's comment. When it is increased, an upgraded monitor builds the table anew."""


@dataclass(frozen=True)
class ControlGroup:
    """A control group (version 2) as nftables knows it."""

    number: int
    """Its id, which is the number of its folder's inode (`cgroup_id` in the kernel)."""
    level: int
    """How many control groups it is below the root."""
    top: int | None = None
    """The `number` of the control group of level 1 that contains it; None: not known."""
    path: str | None = field(default=None, compare=False)
    """Where it is below the root, such as /gsaas-daemons.slice/gsaas-daemon-1.service; None: not known."""


class Listener(NamedTuple):
    """The permission to be connected to: a port, and the control group of the daemon that has it."""

    port: int
    group: int
    """`ControlGroup.number`."""


@dataclass(frozen=True)
class FenceLayout:
    """Everything that the rules depend on. Equal layouts have equal rules, and equal comments on the table."""

    ranges: tuple[Range, ...]
    """The ports that the fence guards."""
    connections: int
    """Upper bound of the connections of one source address to one port at a time."""
    monitor: ControlGroup | None
    """That of the monitor, whose health checks come from this host itself and have to pass; None: there are none."""
    daemon_level: int | None = None
    """`ControlGroup.level` of all daemons; None: whatever listens at a port is its daemon."""
    daemon_top: int | None = None
    """`ControlGroup.top` of all daemons: no program outside is one of them; None: not known."""

    @property
    def comment(self) -> str:
        """The comment on a table that was built for this layout."""
        ports = ",".join(f"{first}-{last}" for first, last in self.ranges)
        monitor = "" if self.monitor is None else f" {self.monitor.number}"
        level = "" if self.daemon_level is None else f" level {self.daemon_level}"
        top = "" if self.daemon_top is None else f" in {self.daemon_top}"
        return f"gsaas-fence {VERSION} {ports} {self.connections}{monitor}{level}{top}"


def merge(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the same ports in the fewest ranges, in order."""
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)
