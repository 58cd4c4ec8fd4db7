# SPDX-License-Identifier: Apache-2.0
"""Ranges of TCP ports, for daemons that serve one lease each. Pure: no I/O."""

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
    each: int = 1
    """How many ports a daemon has at most: its port and those after it."""

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
        """Return a port with `each` free ones from it on for each of *names*; raises `NoFreePort` if there are too few.

        *taken* are the ports of all daemons; the others of a daemon follow. Ports that are chosen are a multiple of
        `each` apart, so that two processes that choose at once take the same ones or none of each other's.

        The search begins at a port that depends on the name. So leases that are claimed at the same time seldom choose
        the same port, and a port that was released is not the next one to be chosen.
        """
        places = len(self) // self.each
        ends = {end for port in taken for end in (port, port + self.each - 1)}
        used = {place for end in ends if 0 <= (place := (end - self.first) // self.each) < places}
        if len(used) + len(names) > places:
            raise NoFreePort(f"{self} has room for {places - len(used)} daemons, not {len(names)}")
        chosen = []
        for name in names:
            place = zlib.crc32(name.encode()) % places
            while place in used:
                place = (place + 1) % places
            used.add(place)
            chosen.append(self.first + place * self.each)
        return chosen
