# SPDX-License-Identifier: Apache-2.0
"""A lease's readings as charts."""

from __future__ import annotations

from typing import Any

from gsaas_dashboard.presentation import readings

DEVICES = [{"index": 0, "memory_mb": 2048}, {"index": 1, "memory_mb": 2048}]


def point(minute: int, **fields: Any) -> dict[str, Any]:
    cgpus = [{"index": index, "utilisation": 10.0 * minute, "used_mb": 1024} for index in (0, 1)]
    return {"at": f"2026-11-23T14:{minute:02}:00Z", "cgpus": cgpus, "path": None} | fields


def of(*points: dict[str, Any], seconds: int = 60) -> dict[str, Any]:
    return {
        "series": [{"seconds": seconds, "points": list(points)}, {"seconds": 600, "points": []}]
    }


def test_each_cgpu_has_charts_of_its_own() -> None:
    (series,) = readings.series(of(point(1), point(2)), DEVICES)
    assert series.title == "the last hour"
    assert [(chart.title, chart.last) for chart in series.charts] == [
        ("cGPU 0: utilisation", "20 %"),
        ("cGPU 0: memory", "1024 MiB"),
        ("cGPU 1: utilisation", "20 %"),
        ("cGPU 1: memory", "1024 MiB"),
    ]
    assert [chart.top for chart in series.charts] == ["100", "2048", "100", "2048"]


def test_the_masked_path_has_charts_where_it_was_measured() -> None:
    path = {
        "sent_bytes_per_second": None,
        "received_bytes_per_second": 3 * 2**20,
        "connections": 2,
        "dropped_packets": 0,
    }
    (series,) = readings.series(of(point(1, cgpus=[], path=path), seconds=600), [])
    assert series.title == "the last day"
    assert [(chart.title, chart.last) for chart in series.charts] == [
        ("From the GPUs", "3 MiB/s"),
        ("Connections", "2"),
        ("Dropped packets", "0"),
    ]


def test_a_slow_path_has_a_unit_in_which_its_rate_can_be_read() -> None:
    rates = (
        {"sent_bytes_per_second": sent, "received_bytes_per_second": 312} for sent in (0, 3277)
    )
    points = [point(minute, cgpus=[], path=rate) for minute, rate in enumerate(rates)]
    (series,) = readings.series(of(*points), [])
    assert [(chart.title, chart.last, chart.top) for chart in series.charts] == [
        ("To the GPUs", "3.2 KiB/s", "5"),
        ("From the GPUs", "312 B/s", "500"),
    ]


def test_a_point_that_is_left_out_interrupts_the_line() -> None:
    (series,) = readings.series(of(point(1), point(2), point(5), point(6)), DEVICES)
    assert [len(chart.lines) for chart in series.charts] == [2, 2, 2, 2]


def test_a_cgpu_that_cannot_be_told_has_no_chart() -> None:
    cgpus = [{"index": 0, "utilisation": None, "used_mb": None}]
    assert readings.series(of(point(1, cgpus=cgpus)), DEVICES) == []


def test_a_service_without_readings() -> None:
    assert readings.series(None, DEVICES) == []
    assert readings.series({}, DEVICES) == []
    assert readings.series(of(), DEVICES) == []
