# SPDX-License-Identifier: Apache-2.0
"""What hosts report becomes readings of the leases that are there, and of no others, whatever a host says."""

from __future__ import annotations

import datetime

import pytest

from gsaas.db.readings import CgpuReading, ClaimedCgpu, PathReading
from gsaas.engine import host_reports
from gsaas.engine.readings import of_cgpus, of_paths
from gsaas.objects.gpu_report import GpuReport, GpuSnapshot, Load, Loads

NOON = datetime.datetime(2026, 11, 23, 12, 0, 0)
LONG_AGO = NOON - datetime.timedelta(hours=1)
GPU = Load("GPU-a", 80.0, 9000)


def claimed(lease_id: str, position: int = 0, gpu: str = "GPU-a", at=LONG_AGO) -> ClaimedCgpu:
    return ClaimedCgpu(lease_id, position, gpu, at)


def made(*loads: Load, of: list[ClaimedCgpu]) -> list[CgpuReading]:
    return of_cgpus(Loads(30.0, loads), of, NOON)


def test_what_a_daemon_of_its_own_does_is_what_the_cgpu_does():
    own = Load("GPU-a", 12.5, 700, "lease-1", 0)
    assert made(GPU, own, of=[claimed("lease-1"), claimed("lease-2")]) == [
        CgpuReading("lease-1", 0, 12.5, 700)
    ]


def test_the_only_lease_on_a_gpu_has_what_the_gpu_has():
    assert made(GPU, of=[claimed("lease-1")]) == [CgpuReading("lease-1", 0, 80.0, 9000)]


def test_of_leases_that_share_a_gpu_and_its_daemon_nothing_is_known():
    """What one of them did would be told to the other."""
    assert made(GPU, of=[claimed("lease-1"), claimed("lease-2")]) == []


def test_what_a_gpu_does_that_a_cgpu_moves_to_or_from_is_not_known_of_the_other_one_there():
    """Its daemon there may have programs still, or have them by now."""
    assert made(GPU, of=[claimed("lease-1"), claimed("lease-2", position=-1)]) == []
    assert made(GPU, of=[claimed("lease-2", position=-1)]) == []


def test_a_new_lease_is_not_told_what_happened_before_it():
    just_now = NOON - datetime.timedelta(seconds=20)
    assert made(GPU, of=[claimed("lease-1", at=just_now)]) == []
    assert made(GPU, of=[claimed("lease-1", at=None)]) == []


def test_what_is_not_known_of_a_cgpu_alone_on_its_gpu_is_that_of_the_gpu():
    own = Load("GPU-a", None, 700, "lease-1", 0)
    assert made(GPU, own, of=[claimed("lease-1")]) == [CgpuReading("lease-1", 0, 80.0, 700)]


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(Load("GPU-z", 0.0, 0, "lease-1", 0), id="of a cGPU on another GPU"),
        pytest.param(Load("GPU-a", 0.0, 0, "lease-9", 0), id="of a lease that is not there"),
        pytest.param(Load("GPU-a", 0.0, 0, "lease-1", 7), id="of a cGPU that the lease lacks"),
    ],
)
def test_a_host_writes_no_reading(lie):
    of = [claimed("lease-1"), claimed("lease-2")]
    assert made(lie, of=of) == []


BOUND = [("lease-1", "port-1", "ACTIVE"), ("lease-2", "port-2", "ACTIVE"), ("lease-3", None, "X")]


def binding(**dropped: int) -> dict:
    return {"installed": True, "dropped_packets": dropped}


def carried(sent: int = 1) -> dict:
    return {"sent": sent, "received": 2, "connections": 3}


def test_what_passes_a_binding_is_what_passes_the_path_of_its_lease():
    report = {"bindings": {"port-1": binding(unmapped=4, refused=5), "port-2": binding()}}
    assert of_paths(report, {"port-1": carried()}, BOUND) == [PathReading("lease-1", 1, 2, 3, 9)]


def test_traffic_of_a_port_that_is_not_bound_there_is_no_reading():
    report = {"bindings": {"port-1": binding(), "port-9": binding()}}
    assert of_paths(report, {"port-9": carried(), "port-2": carried()}, BOUND) == []


@pytest.mark.parametrize(
    "traffic",
    [
        {"port-1": {"sent": float("nan"), "received": 0, "connections": 0}},
        {"port-1": {"sent": -1, "received": 0, "connections": 0}},
        {"port-1": {"sent": 2**60, "received": 0, "connections": 0}},
        {"port-1": {"sent": True, "received": 0, "connections": 0}},
        {"port-1": {"sent": 1, "received": 0}},
        {"port 1": carried()},
        [],
    ],
)
def test_traffic_that_cannot_be_is_left_out(traffic):
    report = host_reports.endpoint_report({"bindings": {}, "traffic": traffic})
    assert report["traffic"] == {}
    assert "left out; the first: traffic" in report["problems"][0]


def test_an_endpoint_of_the_release_before_reports_no_traffic():
    assert host_reports.endpoint_report({"bindings": {}}) == {"bindings": {}}


def report_with(loads) -> dict:
    return {**GpuReport("192.0.2.1", 10.0, GpuSnapshot(())).to_dict(), "loads": loads}


def test_loads_travel_as_json():
    loads = Loads(30.0, [GPU, Load("GPU-a", None, None, "lease-1", 3)])
    report = GpuReport("192.0.2.1", 10.0, GpuSnapshot(()), loads)
    assert GpuReport.from_dict(report.to_dict()).loads == loads


def test_a_report_without_loads_is_that_of_the_release_before():
    assert "loads" not in GpuReport("192.0.2.1", 10.0, GpuSnapshot(())).to_dict()
    assert GpuReport.from_dict(report_with(None)).loads is None


LOAD = {"gpu_uuid": "GPU-a", "utilisation": 1.0, "used_mb": 1, "lease_id": "l", "position": 0}


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"utilisation": float("nan")}, Load("GPU-a", None, 1, "l", 0)),
        ({"utilisation": 101}, Load("GPU-a", None, 1, "l", 0)),
        ({"utilisation": -1}, Load("GPU-a", None, 1, "l", 0)),
        ({"utilisation": "all"}, Load("GPU-a", None, 1, "l", 0)),
        ({"used_mb": 2**31}, Load("GPU-a", 1.0, None, "l", 0)),
        ({"used_mb": 1.5}, Load("GPU-a", 1.0, None, "l", 0)),
        ({"position": -1}, None),
        ({"lease_id": 17}, None),
        ({"lease_id": ""}, None),
        ({"gpu_uuid": "a GPU"}, None),
    ],
)
def test_a_load_that_cannot_be_is_left_out_alone(change, left):
    """One whose lease is not valid is not taken for that of the whole GPU."""
    sent = report_with({"seconds": 30.0, "of": [LOAD, {**LOAD, **change}]})
    found = GpuReport.from_dict(sent)
    first = Load("GPU-a", 1.0, 1, "l", 0)
    assert found.loads == Loads(30.0, [first] if left is None else [first, left])
    assert found.left_out.count == 1


@pytest.mark.parametrize("seconds", [float("nan"), -1, 10**6, "long"])
def test_loads_of_no_time_are_left_out(seconds):
    found = GpuReport.from_dict(report_with({"seconds": seconds, "of": [LOAD]}))
    assert (found.loads, found.left_out.count) == (None, 1)
