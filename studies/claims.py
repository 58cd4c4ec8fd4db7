# SPDX-License-Identifier: Apache-2.0
"""Published claims beside what was measured here, and the verdict on each: the rows of the claims table.

A claim is *reproduced* if the measured value is within a stated band of the published one, or if the inequality that
it states is true. It holds in *direction only* if the value is outside that band, on the same side of no effect at
all. Otherwise it is *refuted*.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any

BAND = 0.15
"""The fraction of a published number by which a measured one may differ, where nothing else is stated."""


class Verdict(enum.StrEnum):
    """What a measurement says about a claim."""

    REPRODUCED = "reproduced"
    DIRECTION_ONLY = "direction only"
    REFUTED = "refuted"


@dataclass(frozen=True)
class PublishedClaim:
    """One statement of a paper, and the result of testing it. It has nothing to do with claims on GPUs."""

    what: str
    """The statement."""
    source: str
    """Paper and section, table or figure."""
    published: str
    """What the paper says, in its own words and units; not every claim is a number."""
    measured: str
    """What was measured here, in the same units."""
    verdict: Verdict
    band: str
    """What had to be true for the claim to be reproduced."""
    why: str = ""
    """Why published and measured values differ, if they do."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary."""
        return asdict(self)


@dataclass(frozen=True)
class Sample:
    """The same measurement with several seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean of the values."""
        return mean(self.values)

    @property
    def spread(self) -> float:
        """Their standard deviation; 0 for a single value."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    def text(self, digits: int = 1) -> str:
        """Return mean and spread with so many decimal places."""
        return f"{self.mean:.{digits}f} ± {self.spread:.{digits}f}"


def sample(found: Sequence[Any], value: Callable[[Any], float]) -> Sample:
    """Return *value* of each of the results *found*, one for each seed."""
    return Sample(tuple(value(one) for one in found))


def near(measured: float, published: float, band: float = BAND, none: float = 0.0) -> Verdict:
    """Return whether *measured* is within the fraction *band* of *published*; *none* is the value without effect."""
    if abs(measured - published) <= band * abs(published):
        return Verdict.REPRODUCED
    return _direction((measured - none) * (published - none) > 0)


def within(measured: float, published: float, distance: float) -> Verdict:
    """Return whether *measured* is at most *distance* from *published*; such a claim has no direction."""
    return Verdict.REPRODUCED if abs(measured - published) <= distance else Verdict.REFUTED


def at_least(measured: float, bound: float, none: float = 0.0) -> Verdict:
    """Return whether *measured* is *bound* or more; *none*, below it, is the value without effect."""
    return Verdict.REPRODUCED if measured >= bound else _direction(measured > none)


def at_most(measured: float, bound: float, none: float | None = None) -> Verdict:
    """Return whether *measured* is *bound* or less; *none*, above it, is the value without effect, if there is one."""
    if measured <= bound:
        return Verdict.REPRODUCED
    return _direction(none is not None and measured < none)


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a claim with several parts: the verdict on the worst of them."""
    order = list(Verdict)
    return max(verdicts, key=order.index)


def _direction(is_right: bool) -> Verdict:
    return Verdict.DIRECTION_ONLY if is_right else Verdict.REFUTED


def band_text(band: float = BAND) -> str:
    """Return how a band around a published number is stated."""
    return f"± {band:.0%}".replace("%", " %")
