# SPDX-License-Identifier: Apache-2.0
"""When an agent sends its next message: not in the same moment as the agents of all other hosts. Pure, but for chance.

What all agents see at once (the engine is away, the bus comes back, all hosts are switched on, an operator changes an
interval) makes all of them send at once. Without chance they would go on doing so, and an engine that does not answer
all in time would be asked again by all at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable

Chance = Callable[[float, float], float]
"""Returns a number between two numbers."""

by_chance: Chance = random.SystemRandom().uniform

FIRST_PAUSE = 1.0
"""At most so many seconds pass after a first attempt that failed."""
LONGEST_PAUSE = 30.0


class BackOff:
    """The pauses between attempts that fail, in seconds: each up to twice as long as the one before."""

    def __init__(self, chance: Chance = by_chance) -> None:
        self._chance = chance
        self._longest = FIRST_PAUSE

    def next_pause(self) -> float:
        """Return the seconds to wait before the next attempt: between half of the longest pause by now, and all."""
        pause = self._chance(self._longest / 2, self._longest)
        self._longest = min(2 * self._longest, LONGEST_PAUSE)
        return pause


class ReportPace:
    """The pauses between the reports of an agent, in seconds."""

    def __init__(self, chance: Chance = by_chance) -> None:
        self._chance = chance
        self._back_off = BackOff(chance)
        self._answered = False
        self.news = True
        """Whether the next report is sent because there is news, before its pause is over."""

    def next_pause(self, interval: float, *, answered: bool) -> float:
        """Return the seconds to wait after a report that was *answered* or not; news may come before they are over."""
        in_turn = self._answered and not self.news
        self._answered = answered
        if not answered:
            return min(self._back_off.next_pause(), interval)
        self._back_off = BackOff(self._chance)
        return until_next(interval, in_turn=in_turn, chance=self._chance)


def until_next(interval: float, *, in_turn: bool, chance: Chance = by_chance) -> float:
    """Return the seconds from one regular message to the next.

    A message *in_turn* was sent because the *interval* was over. After any other, a part of the interval passes that is
    left to chance: what was its reason may have been one for all agents.
    """
    return interval if in_turn else chance(interval / 10, interval)
