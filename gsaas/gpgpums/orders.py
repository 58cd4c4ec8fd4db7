"""Slots, each with an amount, kept in order so that nobody has to search through them all.

A slot is a GPU's place in pool order; its amount is what the GPU can give, 0 when nothing.
Changing one amount and finding the first slot with enough cost O(log n) in both, so 16,384 GPUs
cost little more than 16.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sortedcontainers import SortedList


class InOrder:
    """Finds slots by number: each node of a binary tree knows the largest amount below it."""

    def __init__(self, amounts: Sequence[int]) -> None:
        self._width = 1 << max(len(amounts) - 1, 0).bit_length()
        self._tree = [0] * self._width + list(amounts) + [0] * (self._width - len(amounts))
        for node in range(self._width - 1, 0, -1):
            self._tree[node] = max(self._tree[2 * node], self._tree[2 * node + 1])

    def set(self, slot: int, amount: int) -> None:
        tree = self._tree
        node = slot + self._width
        tree[node] = amount
        while node > 1:
            node //= 2
            largest = max(tree[2 * node], tree[2 * node + 1])
            if tree[node] == largest:
                break  # nobody further up can tell the difference
            tree[node] = largest

    def ascending(self, at_least: int) -> Iterator[int]:
        """Slots with *at_least* (1 or more), lowest first; for use until the next `set`."""
        node = self._width
        while (slot := self._first_from(node, at_least)) is not None:
            yield slot - self._width
            node = slot + 1
            if node == 2 * self._width:
                return

    def _first_from(self, node: int, at_least: int) -> int | None:
        """The first leaf with enough at or to the right of *node*."""
        tree = self._tree
        while tree[node] < at_least:
            while node & 1:  # a right child: what is to the right hangs on an ancestor
                node //= 2
            if node == 0:
                return None
            node += 1
        while node < self._width:
            node *= 2
            if tree[node] < at_least:
                node += 1
        return node


class ByAmount:
    """Finds slots by amount; of equal ones the lowest slot comes first, in both directions."""

    def __init__(self, amounts: Sequence[int]) -> None:
        self._amounts = list(amounts)
        self._sorted = SortedList(
            (-amount, slot) for slot, amount in enumerate(self._amounts) if amount
        )

    def set(self, slot: int, amount: int) -> None:
        before = self._amounts[slot]
        if before == amount:
            return
        self._amounts[slot] = amount
        if before:
            self._sorted.remove((-before, slot))
        if amount:
            self._sorted.add((-amount, slot))

    def descending(self, at_least: int) -> Iterator[int]:
        """Slots with *at_least* (1 or more), most first; for use until the next `set`."""
        for negative, slot in self._sorted:
            if -negative < at_least:
                return
            yield slot

    def ascending(self, at_least: int) -> Iterator[int]:
        """Slots with *at_least* (1 or more), least first; for use until the next `set`."""
        below = (-at_least, math.inf)
        while (last := next(self._sorted.irange(maximum=below, reverse=True), None)) is not None:
            negative = last[0]
            for _, slot in self._sorted.irange((negative,), (negative, math.inf)):
                yield slot
            below = (negative,)
