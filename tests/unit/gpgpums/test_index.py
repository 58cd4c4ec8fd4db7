# SPDX-License-Identifier: Apache-2.0
"""Slots come in the order that sorting all of them would give, whatever was set before."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas.gpgpums.index import MOST_STARTS, AmountIndex, GroupIndex, SlotIndex, TieBreak

AMOUNTS = st.lists(st.integers(0, 5), max_size=9)


@st.composite
def changed(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Amounts, and changes to them."""
    amounts = draw(AMOUNTS)
    slots = st.sampled_from(range(len(amounts))) if amounts else st.nothing()
    return amounts, draw(st.lists(st.tuples(slots, st.integers(0, 5))))


@given(changed(), st.integers(1, 6))
def test_slots_come_in_order_of_number(amounts_and_changes, at_least):
    amounts, changes = amounts_and_changes
    order = SlotIndex(amounts)
    for slot, amount in changes:
        order.set(slot, amount)
        amounts[slot] = amount

    assert list(order.ascending(at_least)) == [
        slot for slot, amount in enumerate(amounts) if amount >= at_least
    ]


@given(changed(), st.integers(1, 6))
def test_slots_come_in_order_of_amount_and_then_of_number(amounts_and_changes, at_least):
    amounts, changes = amounts_and_changes
    order = AmountIndex(amounts)
    for slot, amount in changes:
        order.set(slot, amount)
        amounts[slot] = amount

    enough = [slot for slot, amount in enumerate(amounts) if amount >= at_least]
    assert list(order.descending(at_least)) == sorted(enough, key=lambda slot: -amounts[slot])
    assert list(order.ascending(at_least)) == sorted(enough, key=lambda slot: amounts[slot])


@given(changed(), st.integers(1, 6), st.integers(0, 20))
def test_slots_may_begin_in_the_middle(amounts_and_changes, at_least, start):
    amounts, changes = amounts_and_changes
    order = SlotIndex.empty(len(amounts))
    for slot, amount in [*enumerate(amounts), *changes]:
        order.set(slot, amount)
        amounts[slot] = amount

    assert list(order.ascending(at_least, start)) == [
        slot for slot, amount in enumerate(amounts) if amount >= at_least and slot >= start
    ]
    assert order.largest == max(amounts, default=0)


@given(changed(), st.data(), st.integers(1, 6), st.sampled_from(TieBreak))
def test_slots_come_in_order_of_their_groups_and_within_a_group_as_asked(
    amounts_and_changes, data, at_least, ties
):
    amounts, changes = amounts_and_changes
    keys = [data.draw(st.integers(0, 2)) for _ in amounts]
    order = GroupIndex(amounts, keys, ties)
    for slot, amount in changes:
        keys[slot] = data.draw(st.integers(0, 2))
        order.set(slot, amount, keys[slot])
        amounts[slot] = amount

    order_within = {
        TieBreak.POOL_ORDER: lambda slot: slot,
        TieBreak.MOST_FREE: lambda slot: (-amounts[slot], slot),
        TieBreak.LEAST_FREE: lambda slot: (amounts[slot], slot),
    }[ties]
    enough = [slot for slot, amount in enumerate(amounts) if amount >= at_least]
    assert [(key, list(slots)) for key, slots in order.groups(at_least)] == [
        (key, sorted((slot for slot in enough if keys[slot] == key), key=order_within))
        for key in sorted({keys[slot] for slot in enough})
    ]


def around(slots: list[int], start: int) -> list[int]:
    """Return *slots*, those from *start* on before the others."""
    return sorted(slots, key=lambda slot: (slot < start, slot))


@given(changed(), st.integers(1, 6), st.integers(0, 9))
def test_slots_with_equal_amounts_may_begin_at_any_of_them_and_go_around(
    amounts_and_changes, at_least, chosen
):
    amounts, changes = amounts_and_changes
    order = AmountIndex(amounts)
    for slot, amount in changes:
        order.set(slot, amount)
        amounts[slot] = amount

    equal = {
        amount: [slot for slot, other in enumerate(amounts) if other == amount]
        for amount in sorted({amount for amount in amounts if amount >= at_least})
    }
    wanted = [around(slots, slots[chosen % len(slots)]) for slots in equal.values()]
    assert list(order.ascending(at_least, lambda number: chosen % number)) == [*chain(*wanted)]
    # It is chosen once.
    assert list(order.descending(at_least, lambda number: -chosen % number)) == [
        *chain(*reversed(wanted))
    ]


@given(changed(), st.integers(1, 6), st.integers(0, 9))
def test_slots_in_order_of_number_may_begin_anywhere_and_go_around(
    amounts_and_changes, at_least, chosen
):
    amounts, changes = amounts_and_changes
    order = SlotIndex(amounts)
    for slot, amount in changes:
        order.set(slot, amount)
        amounts[slot] = amount

    enough = [slot for slot, amount in enumerate(amounts) if amount >= at_least]
    asked: list[int] = []

    def choose(number: int) -> int:
        asked.append(number)
        return chosen % number

    wanted: list[int] = []
    if enough:
        others = len(amounts) - enough[0]
        wanted = around(enough, enough[0] + chosen % others)
    assert list(order.around(at_least, choose)) == wanted
    assert list(order.around(at_least, choose)) == wanted
    assert asked == ([others] if enough else [])


def test_equal_slots_begin_at_the_same_one_until_they_are_to_begin_elsewhere():
    chosen = iter([2, 1, 0])
    order = AmountIndex([4, 4, 4, 4, 2, 2])

    def slots() -> list[int]:
        return list(order.descending(1, lambda _: next(chosen)))

    assert slots() == [2, 3, 0, 1, 5, 4]
    order.set(2, 1)
    order.set(4, 0)
    assert slots() == [3, 0, 1, 5, 2]
    order.set(2, 4)
    order.set(4, 2)
    assert slots() == [2, 3, 0, 1, 5, 4]
    order.begin_elsewhere(1)
    assert slots() == [0, 1, 2, 3, 5, 4]
    with pytest.raises(StopIteration):
        next(chosen)


def test_a_slot_that_has_no_equal_says_nothing_of_where_others_begin():
    order = AmountIndex([4, 2, 2, 2])

    def choose(number: int) -> int:
        assert number == 3
        return 1

    assert list(order.descending(1, choose)) == [0, 2, 3, 1]
    order.begin_elsewhere(0)
    order.set(0, 2)
    assert list(order.descending(1, choose)) == [2, 3, 0, 1]


def test_an_index_remembers_where_slots_begin_for_no_more_than_some_amounts():
    order = AmountIndex([0, 0])
    for amount in range(1, 3 * MOST_STARTS):
        order.set(0, amount)
        order.set(1, amount)
        assert list(order.ascending(1, lambda _: 1)) == [1, 0]
        assert list(order.ascending(1, lambda _: 0)) == [1, 0]
        assert len(order._starts) <= MOST_STARTS


def test_each_group_begins_at_a_chosen_one_of_its_slots():
    by_amount = GroupIndex([4, 4, 2, 4, 4], [0, 1, 0, 0, 1], TieBreak.MOST_FREE)
    by_number = GroupIndex([4, 4, 2, 4, 4], [0, 1, 0, 0, 1], TieBreak.POOL_ORDER)

    def slots(index: GroupIndex, choose: Callable[[int], int]) -> list[list[int]]:
        return [list(slots) for _, slots in index.groups(1, choose)]

    def last_of(number: int) -> int:
        return number - 1

    assert slots(by_amount, last_of) == [[3, 0, 2], [4, 1]]
    # The last of all slots has nothing to offer in the first group, so that the first one that has comes after it.
    assert slots(by_number, last_of) == [[0, 2, 3], [4, 1]]
    for index in (by_amount, by_number):
        before = slots(index, last_of)
        index.begin_elsewhere(0)
        assert slots(index, lambda _: 0) == [
            [0, 3, 2] if index is by_amount else [0, 2, 3],
            before[1],
        ]
