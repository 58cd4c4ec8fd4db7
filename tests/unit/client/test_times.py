# SPDX-License-Identifier: Apache-2.0
"""Times of the API in tables, and of people in requests."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gsaasclient.times import age, for_api, local, minute, short


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7199, "119m"),
        (7200, "2h"),
        (172800, "2d"),
    ],
)
def test_an_age_has_one_unit(seconds: int, shown: str) -> None:
    assert age("2001-09-09T01:46:40.000000Z", 1_000_000_000 + seconds) == shown


def test_a_time_that_the_change_of_the_clocks_leaves_out_is_counted_from_before_it(
    in_berlin: None,
) -> None:
    assert for_api("2026-03-29 02:30") == "2026-03-29T01:30:00Z"  # 3:30 by the new time


def test_a_time_is_shown_in_the_zone_of_the_machine(in_berlin: None) -> None:
    assert local("2026-12-01T08:00:00.123456Z") == "2026-12-01 09:00:00"
    assert local("2026-07-01T08:00:00.123456Z") == "2026-07-01 10:00:00"
    assert local(None) is None
    assert local("9999-12-31T23:30:00.000000Z") == "9999-12-31 23:30:00 UTC"


def test_a_time_without_seconds_says_all_the_rest(in_berlin: None) -> None:
    assert minute("2026-12-01T08:00:59.123456Z") == "2026-12-01 09:00"
    assert minute("9999-12-31T23:30:00.000000Z") == "9999-12-31 23:30 UTC"
    assert minute(None) is None


def test_a_short_time_has_the_year_where_it_may_be_in_doubt(in_berlin: None) -> None:
    now = 1_796_112_000.0  # 2026-12-01
    assert short("2026-12-31T23:30:59.000000Z", now) == "01-01 00:30"
    assert short("2026-08-01T08:00:00.000000Z", now) == "08-01 10:00"
    assert short("2025-11-30T08:00:00.000000Z", now) == "2025-11-30"
    assert short("2027-11-30T08:00:00.000000Z", now) == "2027-11-30"
    assert short(None, now) is None


def test_a_time_is_read_in_the_zone_of_the_machine(in_berlin: None) -> None:
    assert for_api("2026-12-01 9:00") == "2026-12-01T08:00:00Z"
    assert for_api("2026-12-01") == "2026-11-30T23:00:00Z"
    assert for_api("2026-12-01T09:00Z") == "2026-12-01T09:00:00Z"


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31 23:00-10:00"])
def test_a_time_that_utc_does_not_have_is_refused(text: str, in_berlin: None) -> None:
    with pytest.raises(ValueError, match=r"is not a time that there is|is a date or time"):
        for_api(text)
