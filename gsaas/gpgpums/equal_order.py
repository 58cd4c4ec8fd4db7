# SPDX-License-Identifier: Apache-2.0
"""The order of GPUs that a policy finds equal.

1. Each process begins at a place of its own, so that processes that claim at once do not all choose the same GPU.
2. From there it goes on in pool order and around, and it begins at the same place again: so it fills one host after the
   other.
3. It chooses another place when another transaction was faster to change a GPU to which the place has led. That
   concerns the GPUs that are equal to this one, and no others.

Nothing else changes the order of a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

MOST_PLACES = 1000
"""Sets of equal GPUs for which a place is remembered."""


class EqualSlots(NamedTuple):
    """Slots that are equal to each other; valid until their index changes."""

    since: Callable[[int], Iterator[int]]
    """Returns those from a slot on, in ascending order."""
    last: int
    """None of them is larger."""


class EqualOrder:
    """Says at which of equal slots to begin: one of the first *within* slots, the one that *randrange* chooses.

    *randrange* returns a number from 0 that is less than its argument. With a *within* of 1, slots are in ascending
    order.
    """

    def __init__(self, within: int = 1, randrange: Callable[[int], int] = lambda _: 0) -> None:
        self._within = within
        self._randrange = randrange
        self._places: dict[Hashable, int] = {}
        """Name of a set of equal slots -> the slot to begin at, or the next one that is equal then."""
        self._led_by: dict[Hashable, set[Hashable]] = {}
        """Slot, with the space that it is counted in -> the sets in which it came."""

    def arrange(self, space: str, name: Hashable, equal: EqualSlots) -> Iterator[int]:
        """Yield *equal* slots in their order; *name* is that of their set, *space* what their numbers count."""
        first = next(equal.since(0), None)
        if self._within == 1 or first is None:
            yield from equal.since(0)
            return
        place = self._places.get((space, name))
        if place is None:
            if len(self._places) == MOST_PLACES:
                self._places.clear()
            place = first + self._randrange(min(equal.last - first + 1, self._within))
            self._places[space, name] = place
        for slot in self._around(equal, place):
            self._led_by.setdefault((space, slot), set()).add((space, name))
            yield slot

    def begin_elsewhere(self, space: str, slot: int) -> None:
        """Have the slots begin elsewhere that are equal to *slot*."""
        for name in self._led_by.pop((space, slot), ()):
            self._places.pop(name, None)

    def changed(self, space: str, slot: int) -> None:
        """Note that *slot* is not equal to those any more to which it was."""
        self._led_by.pop((space, slot), None)

    def forget(self) -> None:
        """Begin elsewhere in every set: the slots have new numbers."""
        self._places.clear()
        self._led_by.clear()

    def _around(self, equal: EqualSlots, place: int) -> Iterator[int]:
        yield from equal.since(place)
        for slot in equal.since(0):
            if slot >= place:
                return
            yield slot
