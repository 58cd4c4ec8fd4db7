# SPDX-License-Identifier: Apache-2.0
"""What `./dev bench` prints."""

from __future__ import annotations

import pytest

from bench.__main__ import benchmarks, main
from bench.report import holds, median, readable


@pytest.mark.parametrize(
    ("value", "bound", "kept"),
    [
        (2.0, "<= 2.0", True),
        (2.01, "<= 2.0", False),
        (100, ">= 100", True),
        (0.89, ">= 0.90", False),
    ],
)
def test_a_bound_says_which_side_to_keep(value, bound, kept):
    assert holds(value, bound) is kept


def test_the_median_is_the_middle():
    assert median([9, 1, 2]) == 2
    assert median([4, 1, 2, 9]) == 3


def test_a_result_becomes_a_table_for_each_kind_of_row():
    result = {
        "bench": "x",
        "machine": {"cores": 2},
        "rows": [
            {"size": 16, "median_ms": 0.12345},
            {"size": 1024, "median_ms": 12345678.9},
            {"n": 1},
        ],
        "reach": [
            {"what": "kept", "value": 1.5, "bound": "<= 2.0"},
            {"what": "missed", "value": 2.5, "bound": "<= 2.0"},
        ],
    }
    assert readable(result) == (
        "  cores  2\n"
        "\n"
        "  size  median ms\n"
        "    16     0.1235\n"
        "  1024   12345679\n"
        "\n"
        "  n\n"
        "  1\n"
        "\n"
        "  reach   measured  bound\n"
        "  kept         1.5  <= 2.0  holds\n"
        "  missed       2.5  <= 2.0  does not hold"
    )


def test_every_benchmark_says_what_it_measures():
    assert "cli" in benchmarks()
    assert all(benchmarks().values())


def test_an_unknown_benchmark_is_refused_by_name(capsys):
    assert main(["nope"]) == 2
    assert "no benchmark 'nope'; there are" in capsys.readouterr().err
