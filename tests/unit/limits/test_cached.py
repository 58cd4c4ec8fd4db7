"""Limits that are remembered for a few seconds."""

from __future__ import annotations

from gsaas import exceptions
from gsaas.limits.base import NO_LIMITS, NOTHING, Limits
from gsaas.limits.cached import KEPT, CachedLimits


class Asked(Limits):
    """Counts how often it was asked."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.away = False

    def of(self, project_id):
        self.answers.append(project_id)
        if self.away:
            raise exceptions.IdentityUnavailable
        return NO_LIMITS


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_limit_is_asked_for_once_in_a_while_and_for_each_project():
    asked, clock = Asked(), Clock()
    limits = CachedLimits(asked, clock)

    assert [limits.of(project) for project in ("blue", "blue", "red")] == [NO_LIMITS] * 3
    clock.now += KEPT
    limits.of("blue")

    assert asked.answers == ["blue", "red", "blue"]


def test_nobody_has_anything_more_while_the_limits_are_not_known():
    asked = Asked()
    asked.away = True

    assert CachedLimits(asked).of("blue") == NOTHING
