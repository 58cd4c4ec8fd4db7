"""Slots come in the order that sorting all of them would give, whatever was set before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gsaas.gpgpums.orders import ByAmount, InOrder

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
    order = InOrder(amounts)
    for slot, amount in changes:
        order.set(slot, amount)
        amounts[slot] = amount

    assert list(order.ascending(at_least)) == [
        slot for slot, amount in enumerate(amounts) if amount >= at_least
    ]


@given(changed(), st.integers(1, 6))
def test_slots_come_in_order_of_amount_and_then_of_number(amounts_and_changes, at_least):
    amounts, changes = amounts_and_changes
    order = ByAmount(amounts)
    for slot, amount in changes:
        order.set(slot, amount)
        amounts[slot] = amount

    enough = [slot for slot, amount in enumerate(amounts) if amount >= at_least]
    assert list(order.descending(at_least)) == sorted(enough, key=lambda slot: -amounts[slot])
    assert list(order.ascending(at_least)) == sorted(enough, key=lambda slot: amounts[slot])
