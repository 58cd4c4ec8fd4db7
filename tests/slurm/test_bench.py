# SPDX-License-Identifier: Apache-2.0
"""Small runs of the benchmark that measures Slurm beside GSaaS."""

from __future__ import annotations

import pytest

from bench.generics import slurm
from tests.support.benchmarks import quick

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


def test_generic():
    if reason := slurm.missing():
        pytest.skip(reason)

    result = quick("generic")

    requests = [row for row in result["rows"] if "request" in row]
    assert {row["request"] for row in requests} == {"gsaas run", "salloc", "srun"}
    assert all(row["failed"] == 0 for row in requests)
    over_one = {
        row["over_one_connection"] for row in result["rows"] if "over_one_connection" in row
    }
    assert over_one == {"GSaaS", "Slurm's C API"}
