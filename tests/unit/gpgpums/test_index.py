# SPDX-License-Identifier: Apache-2.0
"""Slots come in the order that sorting all of them would give, whatever was set before."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from gsaas.gpgpums.index import AmountIndex, GroupIndex, SlotIndex, TieBreak

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


def last_of(number: int) -> int:
    return number - 1


def around(slots: list[int], start: int) -> list[int]:
    return slots[start:] + slots[:start]


@given(changed(), st.integers(1, 6), st.integers(0, 9))
def test_of_slots_with_equal_amounts_the_chosen_one_comes_first(
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
    wanted = [around(slots, chosen % len(slots)) for slots in equal.values()]
    assert list(order.ascending(at_least, lambda number: chosen % number)) == [*chain(*wanted)]
    assert list(order.descending(at_least, lambda number: chosen % number)) == [
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
    begun: list[int] = []

    def choose(number: int) -> int:
        begun.append(enough[0] + chosen % number)
        return chosen % number

    found = list(order.around(at_least, choose))
    assert sorted(found) == enough
    start = begun[0] if begun else 0
    assert found == [
        *(slot for slot in enough if slot >= start),
        *(slot for slot in enough if slot < start),
    ]


def test_each_group_begins_at_a_chosen_one_of_its_slots():
    by_amount = GroupIndex([4, 4, 2, 4, 4], [0, 1, 0, 0, 1], TieBreak.MOST_FREE)
    by_number = GroupIndex([4, 4, 2, 4, 4], [0, 1, 0, 0, 1], TieBreak.POOL_ORDER)

    assert [list(slots) for _, slots in by_amount.groups(1, last_of)] == [[3, 0, 2], [4, 1]]
    # The last of all slots has nothing to offer here, so that the first one that has comes after it.
    assert [list(slots) for _, slots in by_number.groups(1, last_of)] == [[0, 2, 3], [1, 4]]
    assert [list(slots) for _, slots in by_number.groups(1, lambda _: 1)] == [[2, 3, 0], [4, 1]]
