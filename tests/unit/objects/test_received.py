# SPDX-License-Identifier: Apache-2.0
"""Values of reports that cannot even be shown, and problems that pass several hands."""

from __future__ import annotations

from typing import Any

import pytest

from gsaas.engine.host_reports import endpoint_report, gpu_host_report
from gsaas.objects.gpu_report import GpuReport
from gsaas.objects.received import LeftOut, shown


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


GPU = {
    "uuid": "GPU-a",
    "device_index": 0,
    "model": "NVIDIA L4",
    "memory_mb": 23034,
    "daemon_port": 8308,
}
REPORT = {"gpu_address": "192.0.2.7", "interval": 10, "gpus": [GPU], "readings": {"GPU-a": {}}}
UNSHOWABLE = pytest.mark.parametrize(
    "value", [nested(100_000), 10**5000], ids=["nested deeply", "of many digits"]
)


@UNSHOWABLE
@pytest.mark.parametrize("key", ["gpu_address", "interval", "readings", "problems", "loads"])
def test_a_value_that_python_cannot_show_costs_no_gpu(key: str, value: Any) -> None:
    report = GpuReport.from_dict({**REPORT, key: value})
    assert [gpu.uuid for gpu in report.snapshot.gpus] == ["GPU-a"]
    assert report.left_out.count == 1


@UNSHOWABLE
def test_nor_does_one_of_a_process(value: Any) -> None:
    for reading in ({"processes": value}, {"processes": [value]}, {"utilisation": value}):
        report = GpuReport.from_dict({**REPORT, "readings": {"GPU-a": reading}})
        assert list(report.snapshot.readings) == ["GPU-a"]
        assert report.left_out.count == 1


@UNSHOWABLE
def test_nor_do_those_of_daemons_and_bindings(value: Any) -> None:
    left_out = LeftOut()
    bindings = endpoint_report({"bindings": {"port-1": value}, "traffic": value}, left_out)
    assert bindings["bindings"]["port-1"]["installed"] is False
    daemon = {"lease_id": "lease-1", "state": value, "other_gpus": value}
    daemons = gpu_host_report({"serial": 1, "daemons": {"key": daemon}, "fence": None}, left_out)
    assert daemons["daemons"]["key"]["lease_id"] == "lease-1"
    assert left_out.count >= 4


def test_problems_that_pass_several_hands_are_counted_once() -> None:
    """The source, the monitor and the engine each cut them."""
    problems = [f"problem {number}" for number in range(150)]
    cut = shown(problems)
    assert cut[-1] == "and 50 more problems"
    assert shown(shown(cut)) == cut
