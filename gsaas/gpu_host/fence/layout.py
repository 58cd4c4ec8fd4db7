"""Which ports a fence is around, and how often anybody may come in. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Range = tuple[int, int]
"""First and last TCP port, both included."""

VERSION = 1
"""Part of the comment: another number, and an upgraded monitor builds the table anew."""


@dataclass(frozen=True)
class Layout:
    """Everything the rules depend on. Equal layouts have equal rules; the table's comment is the proof."""

    ranges: tuple[Range, ...]
    connections: int
    """Most connections of one source to one port at a time."""
    uid: int
    """The monitor's user, whose health checks come from this host itself."""

    @property
    def comment(self) -> str:
        ports = ",".join(f"{first}-{last}" for first, last in self.ranges)
        return f"gsaas-fence {VERSION} {ports} {self.connections} {self.uid}"


def merge(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same ports in the fewest ranges, in order."""
    merged: list[Range] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)
