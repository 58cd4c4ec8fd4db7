# SPDX-License-Identifier: Apache-2.0
"""The search for an order finds one exactly if trying every order finds one."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection

from tests.world.linearizability import Operation, impossible

What = tuple[str, int]


def register(value: int, what: What) -> Collection[int]:
    act, number = what
    if act == "write":
        return [number]
    return [value] if value == number else []


def write(number: int, start: float, end: float = math.inf) -> Operation:
    return Operation(start, end, ("write", number), f"writes {number}")


def read(number: int, start: float, end: float) -> Operation:
    return Operation(start, end, ("read", number), f"reads {number}")


def test_what_was_read_after_a_write_had_ended_is_not_what_was_there_before():
    assert impossible(0, register, [write(1, 0, 1), read(0, 2, 3)]) == "reads 0"


def test_what_overlaps_may_be_in_either_order():
    operations = [write(1, 0, 5), read(0, 1, 2), read(1, 3, 4)]
    assert impossible(0, register, operations) is None
    assert impossible(0, register, [write(1, 0, 5), read(1, 1, 2), read(0, 3, 4)]) == "reads 0"


def test_what_was_not_answered_was_done_late_or_never():
    assert impossible(0, register, [write(1, 0), read(0, 1, 2), read(1, 3, 4)]) is None
    assert impossible(0, register, [write(1, 0), read(0, 1, 2)]) is None
    assert impossible(0, register, [write(1, 0), read(1, 1, 2), read(0, 3, 4)]) == "reads 0"
    assert impossible(0, register, [read(1, 0, 1), write(1, 2)]) == "reads 1"


def test_the_search_agrees_with_trying_every_order():
    chance = random.Random(1)
    verdicts = set()
    for _ in range(2000):
        operations = []
        for _ in range(chance.randrange(1, 6)):
            start = chance.randrange(8)
            act, number = chance.choice(("read", "write")), chance.randrange(3)
            is_lost = act == "write" and chance.random() < 0.2
            end = math.inf if is_lost else start + chance.randrange(1, 5)
            operations.append(Operation(start, end, (act, number), "it"))
        verdict = impossible(0, register, operations) is None
        assert verdict == any(map(is_right, some_orders(operations)))
        verdicts.add(verdict)
    assert verdicts == {True, False}


def some_orders(operations: list[Operation]) -> Collection[tuple[Operation, ...]]:
    """Return every order of all that was answered, with each choice of what was not."""
    lost = [each for each in operations if not each.is_known]
    known = [each for each in operations if each.is_known]
    return [
        order
        for number in range(len(lost) + 1)
        for done in itertools.combinations(lost, number)
        for order in itertools.permutations([*known, *done])
    ]


def is_right(order: tuple[Operation, ...]) -> bool:
    value = 0
    for place, each in enumerate(order):
        if any(later.end < each.start for later in order[place:]):
            return False
        act, number = each.what
        if act == "read" and number != value:
            return False
        value = number
    return True
