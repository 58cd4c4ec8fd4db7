# SPDX-License-Identifier: Apache-2.0
"""Indexes of slots by the amount of memory that each offers, so that a search need not look at every slot.

A slot is the position of a GPU in pool order; its amount is the MiB that the GPU offers, 0 if none. Changing one amount
and finding the first slot with enough both cost O(log n), so 16,384 GPUs cost little more than 16. Where slots are
grouped, for example by the number of leases on their GPUs, a search costs O(log n) plus one look at each group that
has no slot with enough.

Where slots are equal, a search may be told to begin at a chosen one, those after it next and then those before it. It
is chosen once: later searches begin at the same slot, or at the next one that is equal then, until `begin_elsewhere`,
or until a group has no slot left.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

from sortedcontainers import SortedDict, SortedList

Choose: TypeAlias = Callable[[int], int]
"""Returns which of a number of equal slots comes first: a number from 0 that is less than its argument."""

MOST_STARTS = 1000
"""Amounts for which an index remembers which slot comes first."""


class TieBreak(enum.Enum):
    """The order of the slots within one group."""

    POOL_ORDER = "pool order"
    MOST_FREE = "most free first"
    LEAST_FREE = "least free first"


class _Zeros(dict[int, int]):
    """A list of any number of zeros, which takes memory only for the items that were set."""

    def __missing__(self, key: int) -> int:
        return 0


class SlotIndex:
    """Finds slots by number. It is a binary tree in which each node contains the largest amount below it.

    The root is node 1, the children of node *n* are 2 *n* and 2 *n* + 1, and the leaves are the slots.
    """

    def __init__(self, amounts: Sequence[int]) -> None:
        self._slots = len(amounts)
        self._width = _width(len(amounts))
        self._start: int | None = None
        """The slot at which `around` begins; None if it is yet to be chosen."""
        self._tree: list[int] | _Zeros = [
            *[0] * self._width,
            *amounts,
            *[0] * (self._width - len(amounts)),
        ]
        for node in range(self._width - 1, 0, -1):
            self._tree[node] = max(self._tree[2 * node], self._tree[2 * node + 1])

    @classmethod
    def empty(cls, slots: int) -> SlotIndex:
        """Return an index of this number of *slots*, all with amount 0, that takes memory only for others."""
        index = cls(())
        index._slots = slots
        index._width = _width(slots)
        index._tree = _Zeros()
        return index

    @property
    def largest(self) -> int:
        """Return the largest amount of any slot."""
        return self._tree[1]

    def set(self, slot: int, amount: int) -> None:
        """Change the amount of *slot*."""
        tree = self._tree
        node = slot + self._width
        tree[node] = amount
        while node > 1:
            node //= 2
            largest = max(tree[2 * node], tree[2 * node + 1])
            if tree[node] == largest:
                break  # the nodes above do not change either
            tree[node] = largest

    def ascending(self, at_least: int, start: int = 0) -> Iterator[int]:
        """Yield the slots from *start* on that have *at_least* (1 or more), by number; valid until the next `set`."""
        if start >= self._width:
            return
        node = self._width + start
        while (slot := self._first_from(node, at_least)) is not None:
            yield slot - self._width
            node = slot + 1
            if node == 2 * self._width:
                return

    def around(self, at_least: int, choose: Choose) -> Iterator[int]:
        """Yield the slots that have *at_least* (1 or more), beginning at a chosen one; valid until the next `set`.

        *choose* is asked of all slots from the first one that has enough, whether or not they have.
        """
        first = next(self.ascending(at_least), None)
        if first is None:
            return
        if self._start is None:
            self._start = first + choose(self._slots - first)
        start = self._start
        yield from self.ascending(at_least, start)
        for slot in self.ascending(at_least, first):
            if slot >= start:
                return
            yield slot

    def begin_elsewhere(self, _slot: int) -> None:
        """Have `around` choose anew."""
        self._start = None

    def _first_from(self, node: int, at_least: int) -> int | None:
        """Return the first leaf with enough at or to the right of *node*; None if there is none."""
        tree = self._tree
        while tree[node] < at_least:
            while node & 1:  # a right child: what is to the right of it is below an ancestor
                node //= 2
            if node == 0:
                return None
            node += 1
        while node < self._width:
            node *= 2
            if tree[node] < at_least:
                node += 1
        return node


class AmountIndex:
    """Finds slots by amount; of slots with equal amounts, the lowest comes first in both directions."""

    def __init__(self, amounts: Sequence[int]) -> None:
        self._amounts = {slot: amount for slot, amount in enumerate(amounts) if amount}
        self._starts: dict[int, int] = {}
        """Amount -> the slot at which those that have it begin."""
        # Negative amounts, so that slots with equal amounts are in ascending order when amounts are descending.
        self._sorted = SortedList((-amount, slot) for slot, amount in self._amounts.items())

    @classmethod
    def empty(cls, _slots: int) -> AmountIndex:
        """Return an index of any number of slots, all with amount 0."""
        return cls(())

    @property
    def largest(self) -> int:
        """Return the largest amount of any slot."""
        return -self._sorted[0][0] if self._sorted else 0

    def set(self, slot: int, amount: int) -> None:
        """Change the amount of *slot*."""
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

    def begin_elsewhere(self, slot: int) -> None:
        """Choose anew among the slots that have as much as *slot*."""
        self._starts.pop(self._amounts.get(slot, 0), None)

    def descending(self, at_least: int, choose: Choose | None = None) -> Iterator[int]:
        """Yield the slots with *at_least* (1 or more), most first; valid until the next `set`.

        With *choose*, the chosen one of the slots with equal amounts comes first of them, then those after and before.
        """
        first = 0
        while first < len(self._sorted):
            negative = self._sorted[first][0]
            if -negative < at_least:
                return
            end = self._sorted.bisect_right((negative, math.inf))
            yield from self._equal(first, end, choose)
            first = end

    def ascending(self, at_least: int, choose: Choose | None = None) -> Iterator[int]:
        """Yield the slots with *at_least* (1 or more), least first; as `descending`."""
        end = self._sorted.bisect_right((-at_least, math.inf))
        while end:
            first = self._sorted.bisect_left((self._sorted[end - 1][0],))
            yield from self._equal(first, end, choose)
            end = first

    def _equal(self, first: int, end: int, choose: Choose | None) -> Iterator[int]:
        start = first
        if choose and end - first > 1:
            negative = self._sorted[first][0]
            slot = self._starts.get(-negative)
            if slot is None:
                if len(self._starts) == MOST_STARTS:
                    self._starts.clear()
                slot = self._starts[-negative] = self._sorted[first + choose(end - first)][1]
            start = self._sorted.bisect_left((negative, slot))
        slots = chain(self._sorted.islice(start, end), self._sorted.islice(first, start))
        return (slot for _, slot in slots)


class GroupIndex:
    """Finds slots by group: those with equal keys. The group with the smallest key comes first.

    Slots with amount 0 are in no group, and groups without slots do not exist.
    """

    def __init__(self, amounts: Sequence[int], keys: Sequence[Any], ties: TieBreak) -> None:
        self._slots = len(amounts)
        self._ties = ties
        self._groups: SortedDict[Any, SlotIndex | AmountIndex] = SortedDict()
        self._key_of: dict[int, Any] = {}
        for slot, (amount, key) in enumerate(zip(amounts, keys, strict=True)):
            self.set(slot, amount, key)

    def set(self, slot: int, amount: int, key: Any) -> None:
        """Change the amount and the key of *slot*."""
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
                kind = SlotIndex if self._ties is TieBreak.POOL_ORDER else AmountIndex
                group = self._groups[key] = kind.empty(self._slots)
            group.set(slot, amount)
            self._key_of[slot] = key

    def groups(
        self, at_least: int, choose: Choose | None = None
    ) -> Iterator[tuple[Any, Iterator[int]]]:
        """Yield (key, its slots with *at_least*) for each key that has such slots; valid until the next `set`.

        With *choose*, the chosen one of equal slots comes first of them.
        """
        for key, group in self._groups.items():
            if group.largest >= at_least:
                yield key, self._in_order(group, at_least, choose)

    def begin_elsewhere(self, slot: int) -> None:
        """Choose anew among the slots that are equal to *slot*."""
        if slot in self._key_of:
            self._groups[self._key_of[slot]].begin_elsewhere(slot)

    def _in_order(
        self, group: SlotIndex | AmountIndex, at_least: int, choose: Choose | None
    ) -> Iterator[int]:
        if isinstance(group, SlotIndex):
            return group.around(at_least, choose) if choose else group.ascending(at_least)
        if self._ties is TieBreak.MOST_FREE:
            return group.descending(at_least, choose)
        return group.ascending(at_least, choose)


def _width(slots: int) -> int:
    """Return the smallest power of two that is not less than *slots*."""
    return 1 << max(slots - 1, 0).bit_length()
