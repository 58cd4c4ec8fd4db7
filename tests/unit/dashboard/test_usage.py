# SPDX-License-Identifier: Apache-2.0
"""Usage by project, as bars and as CSV."""

from __future__ import annotations

import csv
import io

from gsaas_dashboard.presentation import usage

PROJECTS = [
    {"project_id": "a1", "leases": 2, "gpu_hours": 1.5, "memory_mb_hours": 2048.0},
    {"project_id": "b2", "leases": 1, "gpu_hours": 6.0, "memory_mb_hours": 1024.0},
    {"project_id": "c3", "leases": 0, "gpu_hours": 0.0, "memory_mb_hours": 0.0},
]


def test_bars_are_as_long_as_the_usage_the_longest_first() -> None:
    bars = usage.bars(PROJECTS, {"a1": "blue"})
    assert bars == [
        ("b2", 1, "6.00", "1.00", 100.0, ""),
        ("blue", 2, "1.50", "2.00", 25.0, ""),
        ("c3", 0, "0.00", "0.00", 0.0, ""),
    ]


def test_costs_are_shown_if_the_operator_has_prices() -> None:
    priced = [{**PROJECTS[0], "cost": "3.75", "unpriced_gpu_hours": 0.0}]
    assert usage.bars(priced, {})[0].cost == "3.75"
    (row,) = csv.DictReader(io.StringIO(usage.as_csv(priced, {})))
    assert (row["cost"], row["unpriced_gpu_hours"]) == ("3.75", "0.0")
    assert "cost" not in usage.as_csv(PROJECTS, {})


def test_nobody_used_anything() -> None:
    assert usage.bars([], {}) == []
    assert usage.bars(PROJECTS[2:], {})[0].width == 0


def test_the_file_has_a_row_for_each_project() -> None:
    rows = list(csv.DictReader(io.StringIO(usage.as_csv(PROJECTS, {"a1": 'bl"ue, Ltd.'}))))
    assert [(row["project_id"], row["project"], row["gpu_hours"]) for row in rows] == [
        ("a1", 'bl"ue, Ltd.', "1.5"),
        ("b2", "", "6.0"),
        ("c3", "", "0.0"),
    ]


def test_no_name_is_a_formula() -> None:
    for name in ("=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\t=1"):
        (row,) = csv.DictReader(io.StringIO(usage.as_csv(PROJECTS[:1], {"a1": name})))
        assert row["project"] == f"'{name}"
