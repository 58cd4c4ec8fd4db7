# SPDX-License-Identifier: Apache-2.0
"""A study that was interrupted goes on where it stopped."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from studies.points import BATCH, HPC, NGS, OPENB, Points, _statements, fingerprint

MEASURED: list[int] = []


def square(number: int) -> int:
    MEASURED.append(number)
    return number * number


def broken_after_two(number: int) -> int:
    if number > 2:
        raise KeyboardInterrupt
    return square(number)


@pytest.fixture
def points(tmp_path: Path):
    MEASURED.clear()
    with ThreadPoolExecutor(1) as executor:
        yield Points(tmp_path / "points", executor)


def test_results_are_in_the_order_of_the_arguments_and_equal_ones_are_measured_once(points: Points):
    assert points.map(square, [3, 1, 3], []) == [9, 1, 9]
    assert sorted(MEASURED) == [1, 3]


def test_what_was_measured_before_an_interruption_is_kept(points: Points):
    with pytest.raises(KeyboardInterrupt):
        points.map(broken_after_two, [1, 2, 3], [])
    MEASURED.clear()
    assert points.map(broken_after_two, [1, 2], []) == [1, 4]
    assert MEASURED == []


def test_other_functions_and_other_code_measure_anew(points: Points):
    points.map(square, [5], BATCH)
    points.map(broken_after_two, [2], BATCH)
    points.map(square, [5], OPENB)
    points.map(square, [5], BATCH)
    assert MEASURED == [5, 2, 5]


def test_comments_docstrings_and_layout_are_no_other_code():
    assert (
        _statements('def f():\n    """One."""\n    return  1  # why\n') == "def f():\n    return 1"
    )
    assert _statements("def f():\n    return 2\n") != _statements("def f():\n    return 1\n")


@pytest.mark.slow
@pytest.mark.parametrize("sources", [BATCH, HPC, NGS, OPENB])
def test_the_code_that_decides_the_results_exists(sources: tuple[str, ...]):
    assert all((Path(__file__).parents[3] / source).exists() for source in sources)
    assert fingerprint(sources) != fingerprint(())
