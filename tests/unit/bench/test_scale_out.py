# SPDX-License-Identifier: Apache-2.0
"""What `./dev bench scale-out` is to reach, computed from measurements."""

from __future__ import annotations

from bench import scale_out
from bench.report import holds


def row(database: str, gpus: int, processes: int, **measured: float) -> dict:
    usual = {
        "per_second": 100.0,
        "cpu_ms": 5.0,
        "worst_ms": 200.0,
        "full_reads": 0.0,
        "attempts": 1.0,
        "wrong": 0,
    }
    return {"database": database, "gpus": gpus, "processes": processes, **usual, **measured}


def test_the_largest_measurement_is_compared_with_the_smallest_and_the_worst_counts():
    rows = [
        row("MariaDB", 64, 1),
        row("MariaDB", 64, 4, attempts=1.2),
        row("MariaDB", 8000, 1),
        row("MariaDB", 8000, 4, cpu_ms=7.5, per_second=50.0, full_reads=0.5),
        *(row("PostgreSQL", gpus, processes) for gpus in (64, 8000) for processes in (1, 4)),
    ]
    missed = {
        reach["what"]: reach["value"]
        for reach in scale_out.bounds(rows, (64, 8000), (1, 4))
        if not holds(reach["value"], reach["bound"])
    }
    assert missed == {
        "MariaDB: CPU time of a claim and release, 4 processes and 8000 GPUs against 1 and 64": 1.5,
        "MariaDB, 8000 GPUs: throughput, 4 processes against 1": 0.5,
        "MariaDB: full reads for each claim": 0.5,
        "MariaDB: attempts at a claim": 1.2,
    }
