# SPDX-License-Identifier: Apache-2.0
"""The usage of projects in a period, calculated by hand."""

from __future__ import annotations

import datetime

import pytest

from gsaas.objects.usage import LeaseUsage, ProjectUsage, by_project


def at(hour: float, day: int = 1) -> datetime.datetime:
    return datetime.datetime(2026, 11, day) + datetime.timedelta(hours=hour)


START, END, NOW = at(0), at(24), at(100)

USAGES = [
    LeaseUsage("blue", at(2), at(5), gpus=2, memory_mb=16384),  # 3 h
    LeaseUsage("blue", at(-10), at(1), gpus=1, memory_mb=8192),  # 1 h of it in the period
    LeaseUsage("blue", at(23.5), at(30), gpus=0.25, memory_mb=2048),  # half an hour of it
    LeaseUsage("red", at(-10), None, gpus=0.5, memory_mb=4096),  # all 24 h, and still
    LeaseUsage("green", at(-5), at(0), gpus=8, memory_mb=65536),  # ended as the period began
    LeaseUsage("green", at(24), at(25), gpus=8, memory_mb=65536),  # began as it ended
    LeaseUsage("grey", at(3), at(3), gpus=1, memory_mb=8192),  # given back at once
]


def test_hours_are_those_within_the_period_in_which_a_lease_had_gpus():
    assert by_project(USAGES, START, END, NOW) == [
        ProjectUsage(
            "blue", leases=3, gpu_hours=6 + 1 + 0.125, memory_mb_hours=49152 + 8192 + 1024
        ),
        ProjectUsage("red", leases=1, gpu_hours=12, memory_mb_hours=98304),
    ]


def test_an_open_lease_counts_until_now_and_not_into_the_future():
    (red,) = by_project(USAGES[3:4], START, END, now=at(6))
    assert (red.gpu_hours, red.memory_mb_hours) == (3, 24576)


def test_a_period_in_the_future_has_no_usage():
    assert by_project(USAGES, at(200), at(300), NOW) == []


@pytest.mark.parametrize("cut", [0.5, 4, 23.75])
def test_two_halves_of_a_period_are_the_whole(cut):
    halves = [by_project(USAGES, *half, NOW) for half in ((START, at(cut)), (at(cut), END))]
    for whole in by_project(USAGES, START, END, NOW):
        parts = [used for half in halves for used in half if used.project_id == whole.project_id]
        assert sum(part.gpu_hours for part in parts) == pytest.approx(whole.gpu_hours)
        assert sum(part.memory_mb_hours for part in parts) == pytest.approx(whole.memory_mb_hours)
