# SPDX-License-Identifier: Apache-2.0
"""Limits are cached for a few seconds."""

from __future__ import annotations

from gsaas import exceptions
from gsaas.limits.base import NO_LIMITS, NOTHING, Limits
from gsaas.limits.cached import MAX_AGE, CachedLimits


class CountingLimits(Limits):
    """Records for which projects limits were read."""

    def __init__(self) -> None:
        self.reads: list[str] = []
        self.unavailable = False

    def of(self, project_id):
        self.reads.append(project_id)
        if self.unavailable:
            raise exceptions.IdentityUnavailable
        return NO_LIMITS


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_limits_are_read_once_per_project_until_they_expire():
    counting, clock = CountingLimits(), Clock()
    limits = CachedLimits(counting, clock)

    assert [limits.of(project) for project in ("blue", "blue", "red")] == [NO_LIMITS] * 3
    clock.now += MAX_AGE
    limits.of("blue")

    assert counting.reads == ["blue", "red", "blue"]


def test_a_project_gets_nothing_more_while_its_limits_are_unknown():
    counting = CountingLimits()
    counting.unavailable = True

    assert CachedLimits(counting).of("blue") == NOTHING
