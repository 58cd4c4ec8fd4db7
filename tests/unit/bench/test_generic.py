# SPDX-License-Identifier: Apache-2.0
"""The bounds of `./dev bench generic`, computed from measurements."""

from __future__ import annotations

from bench import generic


def row(request: str, gpus: int, at_once: int, median_ms: float) -> dict:
    return {"request": request, "gpus": gpus, "at_once": at_once, "median_ms": median_ms}


SERVER = [
    {"server_with_gpus": 16, "cycle_ms": 2.0, "cpu_ms_per_cycle": 1.5},
    {"server_with_gpus": 1024, "cycle_ms": 2.1, "cpu_ms_per_cycle": 1.6},
    {"idle_with_gpus": 1024, "cpu_percent_of_a_core": 3.0, "own_memory_mb": 150.0},
]


def found(rows: list[dict]) -> dict[str, tuple[float, str]]:
    return {
        reach["what"]: (reach["value"], reach["bound"]) for reach in generic.bounds(rows, SERVER)
    }


def test_slurm_is_compared_with_what_ran_beside_it():
    rows = [
        row("gsaas run", 16, 16, 4.0),
        row("salloc", 16, 16, 5.0),
        row("srun", 16, 16, 20.0),
        row("gsaas run", 16, 256, 5.0),
        row("srun", 16, 256, 60.0),
        row("gsaas run", 1024, 1024, 20.0),
        row("srun", 1024, 1024, 40.0),
    ]
    assert found(rows) == {
        "srun against gsaas run, 16 at once on 16 GPUs": (5.0, ">= 2.5"),
        "srun against gsaas run, 256 at once on 16 GPUs": (12.0, ">= 2"),
        "srun against gsaas run, 1024 at once on 1024 GPUs": (2.0, ">= 1.2"),
        "the server's part, 1024 GPUs against 16": (1.05, "<= 1.1"),
    }


def test_without_slurm_only_the_server_has_something_to_reach():
    rows = [row("gsaas run", 16, 16, 4.0)]
    assert list(found(rows)) == ["the server's part, 1024 GPUs against 16"]
