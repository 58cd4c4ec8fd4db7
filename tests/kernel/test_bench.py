# SPDX-License-Identifier: Apache-2.0
"""Small runs of the benchmarks that make network namespaces, or boot a machine."""

from __future__ import annotations

import pytest

from tests.support.benchmarks import column, quick

pytestmark = [pytest.mark.kernel, pytest.mark.thorough]


def test_rodvr():
    result = quick("rodvr")

    assert [(row["other_vms"], row["cgpus"]) for row in result["rows"]] == [
        (0, 1),
        (0, 3),
        (2, 1),
        (2, 3),
    ]
    assert all(row["rodvr_ms"] > 0 and row["iptables_ms"] > 0 for row in result["rows"])
    assert [reach["what"].partition(":")[0] for reach in result["reach"]] == [
        "3 cGPUs on an empty node",
        "3 cGPUs beside 2 VMs",
        "3 cGPUs on an empty node",
    ]


def test_path():
    result = quick("path")

    assert len(result["rows"]) == 4
    for row in result["rows"]:
        assert row["without_rodvr"] > 0
        assert row["plain_routing"] > 0
        assert row["rodvr"] > 0
    assert len(result["reach"]) == 3


def test_compute():
    result = quick("compute")

    assert len(result["rows"]) == len(result["reach"]) == 5
    assert all(row["plain_routing"] > 0 and row["gsaas"] > 0 for row in result["rows"])


def test_boot():
    result = quick("boot", "standalone")

    own = [row for row in result["rows"] if row["cloud"] == "standalone"]
    assert [row["cgpus"] for row in own if "cgpus" in row] == [1, 75]
    assert [row["vms"] for row in own if "vms" in row] == [1, 2]
    assert all(row["boot_s"] > 0 for row in own)
    assert len(result["reach"]) == 2


def test_daemons():
    result = quick("daemons")

    measured = column(result, "until", "median_ms")
    assert list(measured) == [
        "it listens",
        "its unit answers",
        "the program of gsaas run begins",
    ]
    assert all(took > 0 for took in measured.values())


def test_generic():
    result = quick("generic")

    own = [row for row in result["rows"] if row.get("request") == "gsaas run"]
    assert [(row["gpus"], row["at_once"]) for row in own] == [
        (16, 1),
        (16, 16),
        (16, 32),
        (64, 1),
        (64, 16),
    ]
    assert all(row["failed"] == 0 for row in own)
    assert column(result, "over_one_connection", "median_ms")["GSaaS"] > 0
    assert column(result, "idle_with_gpus", "own_memory_mb")[64] > 0
