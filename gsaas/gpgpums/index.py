"""Slots, each with an amount, kept in order so that nobody has to search through them all.

A slot is a GPU's place in pool order; its amount is what the GPU can give, 0 when nothing.
Changing one amount and finding the first slot with enough cost O(log n) in both, so 16,384 GPUs
cost little more than 16. Where slots come in groups, such as those of GPUs with equally many
leases, it is O(log n) plus one look at each group that has nothing large enough.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sortedcontainers import SortedDict, SortedList


class Then(enum.Enum):
    """In which order the slots of one group come."""

    POOL_ORDER = "pool order"
    MOST_FREE = "most free first"
    LEAST_FREE = "least free first"


class _Zeros(dict):
    """A list of zeros that is as long as anybody wants."""

    def __missing__(self, key: int) -> int:
        return 0


class InOrder:
    """Finds slots by number: each node of a binary tree knows the largest amount below it."""

    def __init__(self, amounts: Sequence[int]) -> None:
        self._width = _width(len(amounts))
        self._tree: Any = [0] * self._width + list(amounts) + [0] * (self._width - len(amounts))
        for node in range(self._width - 1, 0, -1):
            self._tree[node] = max(self._tree[2 * node], self._tree[2 * node + 1])

    @classmethod
    def empty(cls, slots: int) -> InOrder:
        """So many *slots* without any amount; takes memory only for those that get one."""
        order = cls(())
        order._width = _width(slots)
        order._tree = _Zeros()
        return order

    @property
    def largest(self) -> int:
        return self._tree[1]

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

    def ascending(self, at_least: int, start: int = 0) -> Iterator[int]:
        """Slots with *at_least* (1 or more), lowest first; for use until the next `set`.

        They begin at *start*, and those before it are left out.
        """
        if start >= self._width:
            return
        node = self._width + start
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
        self._amounts = {slot: amount for slot, amount in enumerate(amounts) if amount}
        self._sorted = SortedList((-amount, slot) for slot, amount in self._amounts.items())

    @classmethod
    def empty(cls, _slots: int) -> ByAmount:
        """Any number of slots without any amount."""
        return cls(())

    @property
    def largest(self) -> int:
        return -self._sorted[0][0] if self._sorted else 0

    def set(self, slot: int, amount: int) -> None:
        before = self._amounts.get(slot, 0)
        if before == amount:
            return
        if before:
            self._sorted.remove((-before, slot))
        if amount:
            self._sorted.add((-amount, slot))
            self._amounts[slot] = amount
        else:
            del self._amounts[slot]

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


class Grouped:
    """Slots in groups: those of equal key. The smallest key comes first; empty groups are forgotten."""

    def __init__(self, amounts: Sequence[int], keys: Sequence[Any], then: Then) -> None:
        self._slots = len(amounts)
        self._then = then
        self._groups: SortedDict = SortedDict()
        self._key_of: dict[int, Any] = {}
        for slot, (amount, key) in enumerate(zip(amounts, keys, strict=True)):
            self.set(slot, amount, key)

    def set(self, slot: int, amount: int, key: Any) -> None:
        known = self._key_of.get(slot)
        if slot in self._key_of and (known != key or not amount):
            del self._key_of[slot]
            group = self._groups[known]
            group.set(slot, 0)
            if not group.largest:
                del self._groups[known]
        if amount:
            group = self._groups.get(key)
            if group is None:
                kind = InOrder if self._then is Then.POOL_ORDER else ByAmount
                group = self._groups[key] = kind.empty(self._slots)
            group.set(slot, amount)
            self._key_of[slot] = key

    def groups(self, at_least: int) -> Iterator[tuple[Any, Iterator[int]]]:
        """(key, its slots with *at_least*), for keys that have any; for use until the next `set`."""
        for key, group in self._groups.items():
            if group.largest >= at_least:
                yield key, self._walk(group)(at_least)

    def _walk(self, group: InOrder | ByAmount) -> Callable[[int], Iterator[int]]:
        return group.descending if self._then is Then.MOST_FREE else group.ascending


def _width(slots: int) -> int:
    return 1 << max(slots - 1, 0).bit_length()
