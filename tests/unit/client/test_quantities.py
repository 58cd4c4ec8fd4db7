# SPDX-License-Identifier: Apache-2.0
"""What people write for memory, durations and times, and what clients make of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oslo_utils import timeutils

from gsaasclient.quantities import memory_mb, moment, seconds, span

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 27, 14, 30, tzinfo=BERLIN)
"""A Friday."""


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("2048", 2048),
        ("2048M", 2048),
        ("2048MiB", 2048),
        ("2048Mi", 2048),
        ("2G", 2048),
        ("2g", 2048),
        ("2GiB", 2048),
        ("2 GiB", 2048),
        ("1.5G", 1536),
        ("1T", 1024 * 1024),
        ("0.5G", 512),
    ],
)
def test_memory_is_in_units_of_1024_and_a_bare_number_is_mib(text: str, mib: int) -> None:
    assert memory_mb(text) == mib


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10m", "is an amount of memory, and M is MiB: did you mean 10M?"),
        ("2GB", "is in units of 1024: did you mean 2G, which is 2 GiB?"),
        ("0.3G", "is a whole number of MiB: did you mean 308M? 0.3G is a little less"),
        ("1.5", "is a whole number of MiB: did you mean 2M? 1.5 is a little less"),
        ("0", "is at least 1 MiB, not '0'"),
        ("2X", "is an amount of memory such as 2G, 2048M or 2048 (MiB), not '2X'"),
        ("much", "is an amount of memory such as 2G, 2048M or 2048 (MiB), not 'much'"),
        ("-2G", "is an amount of memory such as 2G, 2048M or 2048 (MiB), not '-2G'"),
        ("", "is an amount of memory such as 2G, 2048M or 2048 (MiB), not ''"),
        ("9" * 19, f"is too large: {'9' * 18}…"),
    ],
)
def test_memory_that_is_not_understood_is_refused_with_what_would_be(
    text: str, message: str
) -> None:
    with pytest.raises(ValueError) as caught:
        memory_mb(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("90", 90),
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1h30m", 5400),
        ("3d", 259200),
        ("1d2h3m4s", 93784),
    ],
)
def test_a_duration_has_units_and_a_bare_number_is_seconds(text: str, total: int) -> None:
    assert seconds(text) == total


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "10M",
            "is a duration such as 10m, 2h, 1h30m, 3d or 90 (seconds), not '10M'; did you mean 10m?",
        ),
        ("30m1h", "is a duration such as 10m, 2h, 1h30m, 3d or 90 (seconds), not '30m1h'"),
        ("soon", "is a duration such as 10m, 2h, 1h30m, 3d or 90 (seconds), not 'soon'"),
        ("", "is a duration such as 10m, 2h, 1h30m, 3d or 90 (seconds), not ''"),
        ("-5", "is a duration such as 10m, 2h, 1h30m, 3d or 90 (seconds), not '-5'"),
        ("0m", "is at least one second, not '0m'"),
        ("0", "is at least one second, not '0'"),
        ("9" * 19, f"is too large: {'9' * 18}…"),
    ],
)
def test_a_duration_that_is_not_understood_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        seconds(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("now", "2026-11-27T14:30:00+01:00"),
        ("+2h", "2026-11-27T16:30:00+01:00"),
        ("+1h30m", "2026-11-27T16:00:00+01:00"),
        ("18:00", "2026-11-27T18:00:00+01:00"),
        ("today 18:00", "2026-11-27T18:00:00+01:00"),
        ("tomorrow", "2026-11-28T00:00:00+01:00"),
        ("tomorrow 9:00", "2026-11-28T09:00:00+01:00"),
        ("Tomorrow  9:00", "2026-11-28T09:00:00+01:00"),
        ("yesterday 09:00:30", "2026-11-26T09:00:30+01:00"),
        ("friday 16:00", "2026-11-27T16:00:00+01:00"),
        ("friday 8:00", "2026-12-04T08:00:00+01:00"),
        ("mon", "2026-11-30T00:00:00+01:00"),
        ("2026-12-01", "2026-12-01T00:00:00+01:00"),
        ("2026-12-01 9:00", "2026-12-01T09:00:00+01:00"),
        ("2026-12-01T09:00", "2026-12-01T09:00:00+01:00"),
        ("2026-07-01T09:00", "2026-07-01T09:00:00+02:00"),
        ("2026-12-01T09:00-05:00", "2026-12-01T09:00:00-05:00"),
        ("2026-12-01 09:00 +0100", "2026-12-01T09:00:00+01:00"),
        ("2026-12-01T09:00:00.5Z", "2026-12-01T09:00:00.500000+00:00"),
        ("tomorrow 9:00Z", "2026-11-28T09:00:00+00:00"),
    ],
)
def test_a_time_is_read_in_the_callers_zone_unless_it_has_an_offset(text: str, found: str) -> None:
    assert moment(text, NOW, BERLIN).isoformat() == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrowx",
        "next week-ish",
        "25:00",
        "+",
        "+2x",
        "2026-13-01",
        "fr",
        "9",
        "tomorrow at 9",
        "2026-12-01T",
    ]
    + ["Z", "tomorrow Z", "+999999999999d", "٢٠٢٦-12-01"],
)
def test_a_time_that_is_not_understood_is_refused_with_forms_that_are(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        moment(text, NOW, BERLIN)
    assert (
        str(caught.value)
        == f"is a date or time such as tomorrow 9:00, 2026-12-01T09:00+01:00 or +2h, not '{text}'"
    )


def test_a_time_without_a_zone_is_in_that_of_the_machine() -> None:
    assert moment("2026-12-01T09:00", NOW) == datetime(2026, 12, 1, 9).astimezone()


@given(st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)), st.integers(-12 * 60, 14 * 60))
def test_what_the_api_prints_is_read_as_another_parser_reads_it(
    time: datetime, minutes: int
) -> None:
    sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
    text = f"{time.isoformat()}{sign}{hours:02}:{rest:02}"
    assert moment(text, NOW, BERLIN) == timeutils.parse_isotime(text)


@given(
    st.sampled_from(["monday", "wed", "sunday"]),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
)
def test_a_weekday_is_the_first_that_is_still_to_come(day: str, wall: datetime) -> None:
    now = wall.replace(tzinfo=BERLIN)
    found = moment(f"{day} 12:00", now, BERLIN)
    assert found.strftime("%A").lower().startswith(day)
    assert timedelta(0) < found - now <= timedelta(days=7, hours=2)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *((0, "0s"), (-5, "0s"), (0.4, "0s"), (59, "59s"), (480, "8m"), (485, "8m5s")),
        *((28200, "7h50m"), (28205, "7h50m"), (172800, "2d"), (172900, "2d"), (183600, "2d3h")),
    ],
)
def test_a_span_of_time_is_written_in_its_two_largest_units(number: float, text: str) -> None:
    assert span(number) == text
    if number >= 1:
        assert seconds(text) <= number
