# SPDX-License-Identifier: Apache-2.0
"""The bounds of `./dev bench production`, computed from measurements."""

from __future__ import annotations

from bench import production

CYCLES = [
    {"over_one_connection": "GSaaS", "median_ms": 10.0},
    {"over_one_connection": "Placement", "median_ms": 40.0},
]


def row(request: str, at_once: int, median_ms: float) -> dict:
    return {"request": request, "at_once": at_once, "median_ms": median_ms}


def found(rows: list[dict]) -> dict[str, tuple[float, str]]:
    return {
        reach["what"]: (reach["value"], reach["bound"])
        for reach in production.bounds(rows, CYCLES, 0.15)
    }


def test_gsaas_is_compared_with_slurm_and_placement():
    rows = [
        *(row("gsaas run", 1, 20.0), row("srun", 1, 25.0)),
        *(row("gsaas run", 64, 9.0), row("srun", 64, 15.0), row("salloc", 64, 5.0)),
    ]
    assert found(rows) == {
        "gsaas run against srun, 1 at once": (0.8, "<= 1.0"),
        "gsaas run against srun, 64 at once": (0.6, "<= 0.7"),
        "allocate and release over one connection, against Placement": (0.25, "<= 0.45"),
        "gsaas list, seconds": (0.15, "<= 0.2"),
    }


def test_without_slurm_its_bounds_are_left_out():
    rows = [row("gsaas run", 1, 20.0), row("gsaas run", 64, 9.0)]
    assert len(found(rows)) == 2


def test_a_row_has_what_most_and_least_requests_took():
    rows = production.request_rows({("srun", 1): ([0.03, 0.01, 0.02], 1)})
    assert rows == [
        {
            "request": "srun",
            "at_once": 1,
            "median_ms": 20.0,
            "least_ms": 10.0,
            "most_ms": 30.0,
            "failed": 1,
        }
    ]
