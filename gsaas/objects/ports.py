"""Ports of daemons that serve one cGPU each: which of a host's are free. Values in, values out."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass


class NoFreePort(Exception):
    """Fewer ports of a range are free than were asked for."""


@dataclass(frozen=True)
class PortRange:
    """TCP ports from *first* to *last*, both included."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 1024 <= self.first <= self.last <= 65535:
            raise ValueError(f"{self} is no range of ports between 1024 and 65535")

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1

    @classmethod
    def parse(cls, text: str) -> PortRange:
        """Read `20000-20999`; `ValueError` for anything else."""
        first, _, last = text.partition("-")
        try:
            return cls(int(first), int(last))
        except ValueError:
            raise ValueError(
                f"{text!r} is no range of ports, such as 20000-29999, between 1024 and 65535"
            ) from None

    def choose(self, taken: Collection[int], names: Sequence[str]) -> list[int]:
        """Return a free port for each of *names*; raises `NoFreePort` if there are too few.

        Where the search begins depends on the name: leases that are claimed at the same moment then seldom want the
        same port, and one that was given back is not the next to be given away.
        """
        used = {port for port in taken if port in self}
        if len(used) + len(names) > len(self):
            raise NoFreePort(f"{self} has {len(self) - len(used)} free ports, not {len(names)}")
        chosen = []
        for name in names:
            offset = zlib.crc32(name.encode()) % len(self)
            while self.first + offset in used:
                offset = (offset + 1) % len(self)
            used.add(self.first + offset)
            chosen.append(self.first + offset)
        return chosen
