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
    where = {"database": database, "gpus": gpus, "processes": processes, "round": 0}
    return {**where, **usual, "database_cpu_ms": 3.0, **measured}


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


def test_a_ratio_is_the_median_of_those_of_the_rounds_so_a_slow_round_does_not_count():
    rows = [
        row("MariaDB", 64, processes, round=turn, per_second=speed * processes)
        for turn, speed in enumerate((100.0, 20.0, 90.0))
        for processes in (1, 2)
    ]
    assert scale_out.ratio(rows, "per_second", (64, 2), (64, 1)) == 2


def test_the_row_of_several_rounds_has_their_medians_and_the_worst_claim_of_all():
    rows = [
        row("MariaDB", 64, 1, round=turn, per_second=speed, worst_ms=worst)
        for turn, (speed, worst) in enumerate(((90.0, 10.0), (100.0, 700.0), (30.0, 20.0)))
    ]
    (summary,) = scale_out.summary(rows)
    assert (summary["per_second"], summary["worst_ms"]) == (90.0, 700.0)


def test_processes_with_a_database_each_are_compared_with_one_process_as_the_others_are():
    rows = [
        row(database, gpus, processes)
        for database in scale_out.SERVERS
        for gpus in (64, 8000)
        for processes in (1, 4)
    ]
    apart = [row("MariaDB", 8000, 4, cpu_ms=6.0), row("PostgreSQL", 8000, 4, per_second=80.0)]
    mariadb, postgresql = scale_out.control(rows, apart, (64, 8000), (1, 4))
    assert (mariadb["cpu_ratio"], mariadb["throughput_ratio"]) == (1.2, 1.0)
    assert (postgresql["cpu_ratio"], postgresql["throughput_ratio"]) == (1.0, 0.8)
    assert mariadb["databases"] == postgresql["databases"] == 4
