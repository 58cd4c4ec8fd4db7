# SPDX-License-Identifier: Apache-2.0
"""The mean utilisation is that of the window, however often it was looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas.gpu_host.utilisation import mean, within

SAMPLES = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 100)), min_size=1, unique_by=lambda s: s[0]
).map(sorted)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param([], None, id="nothing was read"),
        pytest.param([(0, 70)], 70, id="one stands for itself"),
        pytest.param([(0, 0), (10, 100)], 100, id="each stands for the time before it"),
        pytest.param([(0, 9), (10, 100), (20, 0)], 50, id="equal times"),
        pytest.param([(0, 9), (90, 100), (100, 0)], 90, id="a longer time weighs more"),
        pytest.param(
            [(0, 100), (100, 100), (250, 0), (300, 0)], 100 / 3, id="what is past is cut off"
        ),
        pytest.param([(0, 0), (500, 60)], 60, id="a sample older than the window"),
    ],
)
def test_the_mean_of(samples, expected):
    assert mean(samples, 300) == pytest.approx(expected)


@given(SAMPLES, st.integers(1, 500))
def test_what_is_left_out_changes_no_mean(samples, window):
    assert mean(within(samples, window), window) == mean(samples, window)


@given(SAMPLES, st.integers(1, 500))
def test_a_mean_is_between_the_least_and_the_most(samples, window):
    percents = [percent for _, percent in samples]
    assert min(percents) - 1e-9 <= mean(samples, window) <= max(percents) + 1e-9


@given(SAMPLES, st.integers(1, 500))
def test_no_more_is_kept_than_the_window_and_one_before_it(samples, window):
    kept = within(samples, window)
    begin = samples[-1][0] - window
    assert kept == samples[-len(kept) :]
    assert sum(at < begin for at, _ in kept) <= 1
