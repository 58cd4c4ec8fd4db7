# SPDX-License-Identifier: Apache-2.0
"""Whether answers that overlapped in time can be those of one object, which does one thing at a time.

Each operation has taken effect at one moment between its start and its end. The search is that of Wing and Gong, with
Lowe's memory of what was tried: `Testing for linearizability`, 2017. An operation whose answer nobody knows has no end,
and may have taken effect at any moment after its start, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MOST_TRIED = 100_000
"""Orders of one object after which it is given up."""


class TooManyOrdersError(Exception):
    """So many operations overlap that their order was not found, nor that there is none."""


@dataclass(frozen=True)
class Operation:
    """What was done, between two points of a history, and how it is told."""

    start: float
    end: float
    what: Any
    text: str = ""

    @property
    def is_known(self) -> bool:
        return self.end != math.inf


After = Callable[[Any, Any], Iterable[Hashable]]
"""The states that an object may be in after an operation in a state; none if its answer is impossible there."""


def impossible(initial: Hashable, after: After, operations: Sequence[Operation]) -> str | None:
    """Return the text of the operation that fits into no order; None if there is an order into which all fit.

    Raises `TooManyOrdersError`.
    """
    # Of those that may be next, the one that has to be done soonest is mostly the right one.
    ordered = sorted(operations, key=lambda each: (each.end, each.start))
    wanted = sum(1 << place for place, each in enumerate(ordered) if each.is_known)
    tried = {(0, initial)}
    stack: list[tuple[int, Hashable]] = [(0, initial)]
    furthest, stopped_at = -1, ""
    while stack:
        done, state = stack.pop()
        if done & wanted == wanted:
            return None
        left = [(place, each) for place, each in enumerate(ordered) if not done >> place & 1]
        soonest = left[0][1].end
        following: list[tuple[int, Hashable]] = []
        for place, each in left:
            if each.start > soonest:
                continue
            for next_state in after(state, each.what):
                found = done | 1 << place, next_state
                if found not in tried:
                    tried.add(found)
                    following.append(found)
        if done.bit_count() > furthest:
            furthest, stopped_at = done.bit_count(), left[0][1].text
        if len(tried) > MOST_TRIED:
            raise TooManyOrdersError
        stack += reversed(following)
    return stopped_at
