# SPDX-License-Identifier: Apache-2.0
"""The geometry of line charts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gsaas_dashboard.presentation import charts


def test_a_line_goes_from_the_first_to_the_last_value() -> None:
    chart = charts.line("Utilisation", "%", [(0, 0.0), (60, 50.0), (120, 100.0)], top=100)
    assert chart.lines == ["48.0,98.0 190.0,54.0 332.0,10.0"]
    assert (chart.top, chart.last) == ("100", "100 %")
    assert chart.text == "Utilisation: 100 % now, from 0 to 100 %"


def test_a_gap_interrupts_the_line() -> None:
    chart = charts.line("Memory", "MiB", [(0, 1.0), (1, 2.0), (2, None), (3, 3.0)])
    assert len(chart.lines) == 1
    assert len(chart.dots) == 1


def test_without_a_value_there_is_no_chart() -> None:
    assert charts.line("Memory", "MiB", []) is None
    assert charts.line("Memory", "MiB", [(0, None)]) is None


def test_a_single_value_is_a_dot() -> None:
    chart = charts.line("Connections", "", [(5, 3)])
    assert (chart.lines, len(chart.dots)) == ([], 1)
    assert chart.last == "3"


@given(
    st.lists(st.one_of(st.none(), st.floats(min_value=0, max_value=1e9)), min_size=1, max_size=50)
)
def test_nothing_is_drawn_outside_the_plot(values: list[float | None]) -> None:
    chart = charts.line("x", "", [(float(at), value) for at, value in enumerate(values)])
    if chart is None:
        assert not any(value is not None for value in values)
        return
    places = [p for line in chart.lines for p in line.split()] + [f"{x},{y}" for x, y in chart.dots]
    assert len(places) == len([value for value in values if value is not None])
    for place in places:
        x, y = map(float, place.split(","))
        assert charts.LEFT <= x <= charts.WIDTH - charts.RIGHT
        assert charts.TOP <= y <= charts.HEIGHT - charts.BOTTOM
