# SPDX-License-Identifier: Apache-2.0
"""Equal slots begin at a place of their own and go around, at the same place until another transaction was faster."""

from __future__ import annotations

from collections.abc import Sequence

from gsaas.gpgpums.equal_order import MOST_PLACES, EqualOrder, EqualSlots


def equal(slots: Sequence[int]) -> EqualSlots:
    return EqualSlots(lambda start: (slot for slot in slots if slot >= start), slots[-1])


def arranged(order: EqualOrder, slots: Sequence[int], name: str = "idle") -> list[int]:
    return list(order.arrange("gpus", name, equal(slots)))


def test_slots_come_in_ascending_order_by_default():
    assert arranged(EqualOrder(), [2, 3, 7]) == [2, 3, 7]


def test_slots_begin_at_the_chosen_one_and_go_around():
    chosen = iter([4])
    order = EqualOrder(100, lambda number: next(chosen) if number == 6 else 0)

    assert arranged(order, [2, 3, 5, 7]) == [7, 2, 3, 5]  # 2 and 4 is 6, and the next one is 7
    assert arranged(order, [2, 3, 5, 6, 7]) == [6, 7, 2, 3, 5]


def test_no_slot_beyond_the_first_ones_is_chosen():
    asked: list[int] = []
    order = EqualOrder(3, lambda number: asked.append(number) or number - 1)

    assert arranged(order, [10, 11, 12, 13, 14]) == [12, 13, 14, 10, 11]
    assert asked == [3]


def test_slots_begin_elsewhere_after_a_slot_that_they_led_to_was_lost():
    chosen = iter([1, 3])
    order = EqualOrder(100, lambda _: next(chosen))
    assert arranged(order, [0, 1, 2, 3])[0] == 1

    order.begin_elsewhere("gpus", 9)
    order.begin_elsewhere("hosts", 1)
    assert arranged(order, [0, 1, 2, 3])[0] == 1

    order.begin_elsewhere("gpus", 1)
    assert arranged(order, [0, 1, 2, 3])[0] == 3


def test_what_is_lost_of_one_set_leaves_the_others_where_they_are():
    chosen = iter([1, 2, 3])
    order = EqualOrder(100, lambda _: next(chosen))
    assert arranged(order, [0, 1, 2, 3])[0] == 1
    assert arranged(order, [4, 5, 6, 7], "half free")[0] == 6

    order.begin_elsewhere("gpus", 6)

    assert arranged(order, [0, 1, 2, 3])[0] == 1
    assert arranged(order, [4, 5, 6, 7], "half free")[0] == 7


def test_what_is_lost_once_it_has_changed_concerns_its_former_equals_no_more():
    order = EqualOrder(100, lambda _: 1)
    assert arranged(order, [0, 1, 2, 3])[0] == 1

    order.changed("gpus", 1)
    order.begin_elsewhere("gpus", 1)

    assert order._places


def test_slots_with_new_numbers_begin_elsewhere():
    chosen = iter([1, 2])
    order = EqualOrder(100, lambda _: next(chosen))
    assert arranged(order, [0, 1, 2, 3])[0] == 1

    order.forget()

    assert arranged(order, [0, 1, 2, 3])[0] == 2


def test_the_places_of_no_more_than_some_sets_are_remembered():
    order = EqualOrder(100, lambda number: number - 1)
    for name in range(2 * MOST_PLACES):
        assert arranged(order, [0, 1], str(name)) == [1, 0]
        assert len(order._places) <= MOST_PLACES
