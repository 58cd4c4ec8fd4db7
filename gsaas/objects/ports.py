# SPDX-License-Identifier: Apache-2.0
"""Ranges of TCP ports, for daemons that serve one cGPU each. Pure: no I/O."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass


class NoFreePort(Exception):
    """A range has fewer free ports than are needed."""


@dataclass(frozen=True)
class PortRange:
    """TCP ports from *first* to *last*, both included; `ValueError` if these are not between 1024 and 65535."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 1024 <= self.first <= self.last <= 65535:
            raise ValueError(f"{self} is not a range of ports between 1024 and 65535")

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1

    @classmethod
    def parse(cls, text: str) -> PortRange:
        """Return the range that a text such as `20000-20999` describes; raises `ValueError` for any other text."""
        first, _, last = text.partition("-")
        try:
            return cls(int(first), int(last))
        except ValueError:
            raise ValueError(
                f"{text!r} is not a range of ports, such as 20000-29999, between 1024 and 65535"
            ) from None

    def choose(self, taken: Collection[int], names: Sequence[str]) -> list[int]:
        """Return a free port for each of *names*; raises `NoFreePort` if there are too few.

        The search begins at a port that depends on the name. So leases that are claimed at the same time seldom choose
        the same port, and a port that was released is not the next one to be chosen.
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
