# SPDX-License-Identifier: Apache-2.0
"""Slots come in the order that sorting all of them would give, whatever was set before."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from gsaas.gpgpums.index import AmountIndex, GroupIndex, SlotIndex, Start, TieBreak

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
    for found, groups in (
        (order.ascending, [*equal.values()]),
        (order.descending, [*reversed(equal.values())]),
    ):
        start = Start(len(amounts), lambda number: chosen % number)
        in_order = list(found(at_least, start))
        # It is chosen among the first ones; the others begin at the same slot, or after it.
        begin = groups[0][chosen % len(groups[0])] if groups else 0
        assert in_order == [*chain(*(around(slots, begin) for slots in groups))]
        assert list(found(at_least, start)) == in_order


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
    start = Start(len(amounts), lambda number: chosen % number)
    found = list(order.around(at_least, start))
    assert found == around(enough, start.slot or 0)
    assert list(order.around(at_least, start)) == found


def test_slots_begin_where_they_have_begun_until_that_is_moved():
    numbers = iter([2, 0])
    start = Start(3, lambda _: next(numbers))
    order = AmountIndex([4, 4, 4, 4])

    assert list(order.descending(1, start)) == [2, 3, 0, 1]
    order.set(2, 1)
    assert list(order.descending(1, start)) == [3, 0, 1, 2]
    order.set(2, 4)
    assert list(order.descending(1, start)) == [2, 3, 0, 1]
    start.move()
    assert list(order.descending(1, start)) == [0, 1, 2, 3]


def test_slots_begin_at_one_of_the_first_of_those_that_are_equal():
    asked = []
    start = Start(3, lambda number: asked.append(number) or 0)
    for amounts in ([0, 4, 4], [4, 4, 4, 4, 4]):
        start.move()
        list(AmountIndex(amounts).descending(1, start))
    assert asked == [2, 3]


def test_each_group_begins_at_the_same_slot():
    by_amount = GroupIndex([4, 4, 2, 4, 4], [0, 1, 0, 0, 1], TieBreak.MOST_FREE)
    by_number = GroupIndex([4, 4, 2, 4, 4], [0, 1, 0, 0, 1], TieBreak.POOL_ORDER)

    def slots(index: GroupIndex, among: int) -> list[list[int]]:
        start = Start(among, lambda number: number - 1)
        return [list(slots) for _, slots in index.groups(1, start)]

    assert slots(by_amount, 5) == [[3, 0, 2], [4, 1]]
    # Slot 4 has nothing to offer in the first group, so that the first one that has comes after it.
    assert slots(by_number, 5) == [[0, 2, 3], [4, 1]]
    assert slots(by_number, 2) == [[2, 3, 0], [1, 4]]
