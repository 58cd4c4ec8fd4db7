# SPDX-License-Identifier: Apache-2.0
"""Small runs of the benchmarks that measure a real cloud."""

from __future__ import annotations

import pytest

from bench.productions import proxy
from tests.support.benchmarks import column, quick

pytestmark = [pytest.mark.openstack, pytest.mark.thorough, pytest.mark.timeout(1200)]


@pytest.mark.usefixtures("cloud")
def test_boot():
    result = quick("boot", "openstack")

    own = [row for row in result["rows"] if row["cloud"] == "OpenStack"]
    assert [row["cgpus"] for row in own if "cgpus" in row] == [0, 1, 75]
    assert [row["vms"] for row in own if "vms" in row] == [1, 2]
    assert all(row["boot_s"] > 0 for row in own)


@pytest.mark.usefixtures("cloud")
def test_production():
    if proxy.program() is None:
        pytest.skip(f"{proxy.PACKAGE} is not installed")

    result = quick("production")

    requests = [row for row in result["rows"] if "request" in row]
    assert {row["at_once"] for row in requests if row["request"] == "gsaas run"} == {1, 64}
    assert all(row["failed"] == 0 for row in requests if row["request"] == "gsaas run")
    assert set(column(result, "over_one_connection", "median_ms")) == {"GSaaS", "Placement"}
    assert len(column(result, "command", "seconds")) == 2
