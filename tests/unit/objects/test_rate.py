# SPDX-License-Identifier: Apache-2.0
"""Each source, and all of them together, may cause a number of events in a minute."""

from __future__ import annotations

from gsaas.objects import rate
from gsaas.objects.rate import RateLimit


def test_a_source_is_silenced_after_its_share_and_heard_again_in_time():
    limit = RateLimit(per_source=3, total=100)
    assert [limit.allows("a", 0.0) for _ in range(5)] == [True] * 3 + [False] * 2
    assert limit.allows("b", 0.0)
    assert not limit.allows("a", 19.0)
    assert limit.allows("a", 20.5)
    assert not limit.allows("a", 21.0)


def test_a_source_that_never_pauses_is_heard_at_its_rate():
    limit = RateLimit(per_source=6, total=1000)
    heard = sum(limit.allows("a", second / 10) for second in range(6000))
    assert 6 + 59 <= heard <= 6 + 60  # ten minutes


def test_many_sources_cause_no_more_than_all_may_together():
    limit = RateLimit(per_source=10, total=50)
    heard = sum(limit.allows(f"2001:db8::{number:x}", 0.0) for number in range(1000))
    assert heard == 50
    assert limit.allows("late", rate.PERIOD)


def test_sources_that_are_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(rate, "MAX_SOURCES", 10)
    limit = RateLimit(per_source=1, total=10_000)
    for number in range(100):
        limit.allows(str(number), 0.0)
    assert len(limit._sources) == 10
    assert not limit.allows("99", 0.0), "the newest are remembered"
