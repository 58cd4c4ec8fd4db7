# SPDX-License-Identifier: Apache-2.0
"""Indexes of slots by the amount of memory that each offers, so that a search need not look at every slot.

A slot is the position of a GPU in pool order; its amount is the MiB that the GPU offers, 0 if none. Changing one amount
and finding the first slot with enough both cost O(log n), so 16,384 GPUs cost little more than 16. Where slots are
grouped, for example by the number of leases on their GPUs, a search costs O(log n) plus one look at each group that
has no slot with enough.

Slots that are equal come as sets, whose order `gsaas.gpgpums.equal_order` decides.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any

from sortedcontainers import SortedDict, SortedList

from gsaas.gpgpums.equal_order import EqualSlots


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

    def equal(self, at_least: int) -> EqualSlots:
        """Return the slots that have *at_least* (1 or more), as equal ones."""
        return EqualSlots(lambda start: self.ascending(at_least, start), self._slots - 1)

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
    """Finds slots by amount; those with equal amounts come as a set."""

    def __init__(self, amounts: Sequence[int]) -> None:
        self._amounts: dict[int, int] = {}
        self._slots: SortedDict[int, SortedList[int]] = SortedDict()
        """Amount -> the slots that have it."""
        for slot, amount in enumerate(amounts):
            self.set(slot, amount)

    @classmethod
    def empty(cls, _slots: int) -> AmountIndex:
        """Return an index of any number of slots, all with amount 0."""
        return cls(())

    @property
    def largest(self) -> int:
        """Return the largest amount of any slot."""
        return int(self._slots.peekitem(-1)[0]) if self._slots else 0

    def set(self, slot: int, amount: int) -> None:
        """Change the amount of *slot*."""
        before = self._amounts.pop(slot, 0)
        if before:
            equal = self._slots[before]
            equal.remove(slot)
            if not equal:
                del self._slots[before]
        if amount:
            self._amounts[slot] = amount
            if amount not in self._slots:
                self._slots[amount] = SortedList()
            self._slots[amount].add(slot)

    def ascending(self, at_least: int) -> Iterator[tuple[int, EqualSlots]]:
        """Yield each amount of *at_least* (1 or more) and its slots, least first; valid until the next `set`."""
        for amount in self._slots.irange(at_least):
            yield amount, self._equal(amount)

    def descending(self, at_least: int) -> Iterator[tuple[int, EqualSlots]]:
        """Yield what `ascending` yields, most first."""
        for amount in self._slots.irange(at_least, reverse=True):
            yield amount, self._equal(amount)

    def _equal(self, amount: int) -> EqualSlots:
        slots = self._slots[amount]
        return EqualSlots(lambda start: slots.irange(start), slots[-1])


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

    def groups(self, at_least: int) -> Iterator[tuple[Any, Iterator[tuple[int, EqualSlots]]]]:
        """Yield each key that has slots with *at_least*, and these, as sets of equal ones, each with a number.

        Valid until the next `set`.
        """
        for key, group in self._groups.items():
            if group.largest >= at_least:
                yield key, self._in_order(group, at_least)

    def _in_order(
        self, group: SlotIndex | AmountIndex, at_least: int
    ) -> Iterator[tuple[int, EqualSlots]]:
        if isinstance(group, SlotIndex):
            return iter([(0, group.equal(at_least))])
        if self._ties is TieBreak.MOST_FREE:
            return group.descending(at_least)
        return group.ascending(at_least)


def _width(slots: int) -> int:
    """Return the smallest power of two that is not less than *slots*."""
    return 1 << max(slots - 1, 0).bit_length()
