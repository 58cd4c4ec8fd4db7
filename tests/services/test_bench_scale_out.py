# SPDX-License-Identifier: Apache-2.0
"""`./dev bench scale-out --quick` measures real processes on real servers, and says what they needed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.services, pytest.mark.thorough]


def test_processes_that_claim_at_once_read_everything_once_and_leave_right_books():
    command = (sys.executable, "-m", "bench", "scale-out", "--quick", "--json")
    done = subprocess.run(command, check=True, capture_output=True, text=True)

    result = json.loads(done.stdout)
    assert [(row["database"], row["processes"]) for row in result["rows"]] == [
        ("MariaDB", 1),
        ("MariaDB", 2),
        ("PostgreSQL", 1),
        ("PostgreSQL", 2),
        ("MariaDB", 2),
        ("PostgreSQL", 2),
    ]
    controls = [row for row in result["rows"] if row.get("databases")]
    assert all(row["cpu_ratio"] > 0 and row["throughput_ratio"] > 0 for row in controls)
    assert len(controls) == 2
    for row in result["rows"]:
        assert row["wrong"] == 0
        assert row["full_reads"] == 0  # after the one before the first claim
        assert row["attempts"] >= 1
        assert 0 < row["cpu_ms"] < 1e3
        assert row["per_second"] > 0
        assert row["worst_ms"] > 0
    assert len(result["reach"]) == 12
