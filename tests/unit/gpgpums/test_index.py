# SPDX-License-Identifier: Apache-2.0
"""Slots come in the order that sorting all of them would give, whatever was set before."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from gsaas.gpgpums.equal_order import EqualSlots
from gsaas.gpgpums.index import AmountIndex, GroupIndex, SlotIndex, TieBreak

AMOUNTS = st.lists(st.integers(0, 5), max_size=9)


def slots_of(sets: Iterable[tuple[int, EqualSlots]]) -> list[int]:
    """Return the slots of sets of equal ones, one set after the other."""
    return [slot for _, equal in sets for slot in equal.since(0)]


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
    assert slots_of(order.descending(at_least)) == sorted(enough, key=lambda slot: -amounts[slot])
    assert slots_of(order.ascending(at_least)) == sorted(enough, key=lambda slot: amounts[slot])


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
    assert [(key, slots_of(sets)) for key, sets in order.groups(at_least)] == [
        (key, sorted((slot for slot in enough if keys[slot] == key), key=order_within))
        for key in sorted({keys[slot] for slot in enough})
    ]


@given(changed(), st.integers(1, 6), st.integers(0, 9))
def test_equal_slots_are_those_of_one_amount_and_may_begin_anywhere(
    amounts_and_changes, at_least, start
):
    amounts, changes = amounts_and_changes
    order = AmountIndex(amounts)
    for slot, amount in changes:
        order.set(slot, amount)
        amounts[slot] = amount

    for amount, equal in order.ascending(at_least):
        slots = [slot for slot, other in enumerate(amounts) if other == amount]
        assert list(equal.since(start)) == [slot for slot in slots if slot >= start]
        assert equal.last == slots[-1]
