# SPDX-License-Identifier: Apache-2.0
"""The table of what may be done in a world, to which `operations` and `faults` add."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.world.world import World

Act = Callable[["World", random.Random], object]


@dataclass(frozen=True)
class Kind:
    """One kind of happening: how often it is drawn, and what it does."""

    weight: float
    act: Act


ALL: dict[str, Kind] = {}


def happens(weight: float = 1.0) -> Callable[[Act], Act]:
    """Add the decorated function to the table."""

    def add(act: Act) -> Act:
        ALL[act.__name__] = Kind(weight, act)
        return act

    return add
