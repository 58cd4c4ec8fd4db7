# SPDX-License-Identifier: Apache-2.0
"""What the clock of a cloud says, at least. The cloud lists changes by it, and the engine's may be another. Pure.

The cloud has shown each change after it happened, so its clock has reached the time of that change, and goes on from
there. An engine that took its own clock instead, which is ahead, would ask for changes of the future only.
"""

from __future__ import annotations

import datetime

_MOST_DIFFERENCE = datetime.timedelta(days=1)
"""How far the engine's clock may be from the cloud's before that has shown any change."""


class CloudClock:
    """The clock of a cloud. *when* is always the engine's monotonic clock, in seconds; times are in UTC."""

    def __init__(self, now: datetime.datetime, when: float) -> None:
        """*now* is what the engine's own clock says."""
        self._at_zero = now - _MOST_DIFFERENCE - datetime.timedelta(seconds=when)

    def has_reached(self, at: datetime.datetime, when: float) -> None:
        """Note that the cloud's clock has reached *at*."""
        self._at_zero = max(self._at_zero, at - datetime.timedelta(seconds=when))

    def at_least(self, when: float) -> datetime.datetime:
        """Return a time that the cloud's clock had reached."""
        return self._at_zero + datetime.timedelta(seconds=when)
