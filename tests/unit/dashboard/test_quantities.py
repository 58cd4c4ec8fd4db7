# SPDX-License-Identifier: Apache-2.0
"""Numbers and times as the dashboard writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas_dashboard.presentation import quantities


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "-"),
        (0, "0.0 ms"),
        (0.0004, "0.4 ms"),
        (2.46, "2.5 s"),
        (60, "1 min 0 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations(seconds: float | None, said: str) -> None:
    assert quantities.seconds(seconds) == said


def test_moments_and_memory() -> None:
    assert quantities.moment("2026-11-23T14:05:00.123456Z") == "2026-11-23 14:05:00 UTC"
    assert quantities.moment(None) == "-"
    assert quantities.mebibytes(2048) == "2048 MiB"
    assert quantities.mebibytes(None) == "-"


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_an_axis_ends_above_its_values_and_not_far_above(value: float) -> None:
    end = quantities.ceiling(value)
    assert value <= end <= 10 * value
    assert f"{end:e}"[0] in "125"


def test_an_axis_without_values_ends_somewhere() -> None:
    assert quantities.ceiling(0) == 1
