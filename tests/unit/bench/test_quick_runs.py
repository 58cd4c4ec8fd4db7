# SPDX-License-Identifier: Apache-2.0
"""Each benchmark has a small run, in which it measures all that it measures at its size, without a bound that matters.

Those that need more than a process are in tests/kernel, tests/services, tests/slurm and tests/openstack.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bench.__main__ import benchmarks
from gsaas.gpgpums import policies
from studies import document
from tests.support.benchmarks import column, quick


@pytest.mark.parametrize("name", benchmarks())
def test_every_benchmark_has_a_small_run(name):
    module = ast.parse(Path("bench", f"{name.replace('-', '_')}.py").read_text())
    (run,) = [
        each for each in module.body if isinstance(each, ast.FunctionDef) and each.name == "run"
    ]
    assert "quick" in [argument.arg for argument in (*run.args.args, *run.args.kwonlyargs)]


@pytest.mark.thorough
def test_claim():
    result = quick("claim")

    assert set(column(result, "core", "median_us")) == set(policies.names())
    assert {(row["gpus"], row["busy"]) for row in result["rows"] if "api" in row} == {
        (gpus, busy) for gpus in (16, 64) for busy in (0.0, 0.9)
    }
    assert all(row.get("median_us", row.get("median_ms")) > 0 for row in result["rows"])
    assert all(reach["value"] > 0 for reach in result["reach"])


@pytest.mark.thorough
def test_cli():
    took = column(quick("cli"), "command", "median_ms")
    assert set(took) == {"python -c pass", "gsaas --help", "gsaas list"}
    assert took["gsaas list"] > took["python -c pass"] > 0


@pytest.mark.thorough
def test_grants():
    result = quick("grants")

    assert set(column(result, "grant", "median_us")) == {"sign", "verify", "redeem"}
    assert len(column(result, "API", "median_ms")) == 2
    (reach,) = result["reach"]
    assert reach["value"] > 0


@pytest.mark.thorough
def test_reports():
    result = quick("reports")

    assert column(result, "gpus_per_host", "hosts") == {8: 4, 16: 2}
    assert all(value > 0 for value in column(result, "gpus_per_host", "ms_a_report").values())
    assert column(result, "process", "mib")["gsaas-monitor, loaded"] > 10


@pytest.mark.thorough
def test_sim_measures_again_and_stores_nothing():
    files = [*document.PAGES, document.PICTURE, *sorted(document.RESULTS.iterdir())]
    stored = [file.read_bytes() for file in files]

    result = quick("sim")

    assert any("claim" in row for row in result["rows"])
    assert [file.read_bytes() for file in files] == stored
