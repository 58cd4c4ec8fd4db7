# SPDX-License-Identifier: Apache-2.0
"""A moment that the clock of a cloud has surely reached, whatever the engine's clock says."""

from __future__ import annotations

import datetime

import pytest

from gsaas.engine.cloud_clock import CloudClock

NOW = datetime.datetime(2026, 3, 1, 12)
DAY = datetime.timedelta(days=1)


def seconds(number: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=number)


def test_before_any_change_the_clocks_may_differ_by_a_day():
    clock = CloudClock(NOW, when=100)
    assert clock.at_least(when=100) == NOW - DAY
    assert clock.at_least(when=160) == NOW - DAY + seconds(60)


@pytest.mark.parametrize("ahead", [-600, 0, 600])
def test_it_goes_on_from_the_newest_change(ahead: float):
    """The engine's clock is *ahead*, or behind."""
    clock = CloudClock(NOW + seconds(ahead), when=100)
    clock.has_reached(NOW, when=105)
    clock.has_reached(NOW - seconds(30), when=105)
    assert clock.at_least(when=105) == NOW
    assert clock.at_least(when=165) == NOW + seconds(60)


def test_a_moment_before_the_newest_change_was_shown_is_before_that_change():
    """Such as the begin of the query that has shown it: others that happened meanwhile are shown by the next."""
    clock = CloudClock(NOW, when=100)
    clock.has_reached(NOW, when=130)
    assert clock.at_least(when=100) == NOW - seconds(30)


def test_an_old_change_tells_less_than_one_before_it():
    clock = CloudClock(NOW, when=0)
    clock.has_reached(NOW, when=10)
    clock.has_reached(NOW + seconds(5), when=70)
    assert clock.at_least(when=70) == NOW + seconds(60)
