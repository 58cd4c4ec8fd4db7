# SPDX-License-Identifier: Apache-2.0
"""Readings fall into intervals, of which only so many are kept, and tell what happened and since when nothing did."""

from __future__ import annotations

import datetime

import pytest

from gsaas.objects import readings
from gsaas.objects.readings import (
    IDLE_AFTER,
    RESOLUTIONS,
    ROWS,
    WHOLE,
    CgpuInterval,
    CgpuPoint,
    PathInterval,
    PathPoint,
    Point,
)

NOON = datetime.datetime(2026, 11, 23, 12, 0, 0)
MINUTES, TEN_MINUTES = RESOLUTIONS


def after(seconds: float) -> datetime.datetime:
    return NOON + datetime.timedelta(seconds=seconds)


def cgpu(seconds: float = 0, *, position: int = 0, resolution: int = 60, **more) -> CgpuInterval:
    at = after(seconds)
    number = readings.number_of(at, resolution) if resolution else 0
    known = {"samples": 1, "utilisation_sum": 50.0, "used_mb": 100, "busy_at": at}
    return CgpuInterval(
        position=position, resolution=resolution, number=number, at=at, **known | more
    )


def path(seconds: float = 0, *, sent: int = 0, resolution: int = 60, **more) -> PathInterval:
    at = after(seconds)
    number = readings.number_of(at, resolution) if resolution else 0
    known = {"connections": 1, "dropped_packets": 0, "busy_at": at, "received_bytes": 2 * sent}
    return PathInterval(resolution, number, at, sent_bytes=sent, **known | more)


def slots(at: datetime.datetime) -> list[tuple[int, int]]:
    return [(slot.resolution, slot.slot) for slot in readings.slots_of(at)]


def test_a_day_of_readings_has_a_bounded_number_of_rows():
    """One every half minute, for more than a day."""
    used = {slot for step in range(3000) for slot in slots(after(30 * step))}
    assert len(used) == ROWS == 205


def test_two_readings_of_one_minute_share_its_slot_and_the_next_minute_has_another():
    first, second, third = (readings.slots_of(after(seconds)) for seconds in (0, 59.9, 60))
    assert first == second
    assert first[1].number + 1 == third[1].number
    assert first[1].slot != third[1].slot


def test_a_slot_is_used_again_only_after_its_interval_has_passed_out():
    for place, (seconds, kept) in enumerate(RESOLUTIONS, 1):
        before, again = readings.slots_of(NOON), readings.slots_of(after(seconds * kept))
        assert before[place].slot == again[place].slot
        assert before[place].number == again[place].number - kept


def test_the_mean_of_an_interval_is_that_of_its_readings():
    (point,) = readings.points(MINUTES, [cgpu(samples=4, utilisation_sum=100.0)], [], after(30))
    assert point == Point(NOON, (CgpuPoint(0, 25.0, 100),))


def test_what_is_not_known_is_not_zero():
    (point,) = readings.points(
        MINUTES, [cgpu(samples=0, utilisation_sum=0.0, used_mb=None)], [], NOON
    )
    assert point.cgpus == (CgpuPoint(0, None, None),)


def test_intervals_that_have_passed_out_and_other_resolutions_are_left_out():
    rows = [cgpu(-3600), cgpu(-3540), cgpu(0), cgpu(0, resolution=600), cgpu(0, resolution=WHOLE)]
    assert [point.at for point in readings.points(MINUTES, rows, [], NOON)] == [after(-3540), NOON]


def test_rates_are_what_passed_between_two_reports():
    before, at_noon = path(-60, sent=1000), path(0, sent=4000, dropped_packets=3, connections=7)
    first, second = readings.points(MINUTES, [], [at_noon, before], NOON)
    assert first.path == PathPoint(None, None, 1, None)
    assert second.path == PathPoint(50.0, 100.0, 7, 3)


def test_a_counter_that_began_anew_counts_from_zero():
    """The VM has moved to another host, or the rules were built again."""
    _, second = readings.points(MINUTES, [], [path(-60, sent=10**9), path(0, sent=600)], NOON)
    assert second.path == PathPoint(10.0, 20.0, 1, 0)


def test_there_is_no_rate_over_a_gap():
    _, second = readings.points(MINUTES, [], [path(-600, sent=0), path(0, sent=600)], NOON)
    assert second.path == PathPoint(None, None, 1, None)


def test_cgpus_and_path_of_one_interval_are_one_point_in_the_order_of_the_cgpus():
    rows = [cgpu(5, position=1), cgpu(50, position=0)]
    (point,) = readings.points(MINUTES, rows, [path(20)], after(59))
    assert [each.position for each in point.cgpus] == [0, 1]
    assert point.path is not None


def test_the_latest_reading_has_the_newest_of_each_cgpu_and_of_the_path():
    rows = [cgpu(-60, position=0), cgpu(-60, position=1, used_mb=5), cgpu(0, position=0, used_mb=7)]
    found = readings.points(MINUTES, rows, [path(-60)], NOON)
    newest = readings.latest(found, NOON)
    assert newest is not None
    assert newest.at == NOON
    assert [each.used_mb for each in newest.cgpus] == [7, 5]
    assert newest.path is not None
    assert readings.latest(found, after(300)) is None


def whole(busy: float = -3600, at: float = 0, **more) -> CgpuInterval:
    return cgpu(at, resolution=WHOLE, busy_at=after(busy), **more)


QUIET_PATH = path(resolution=WHOLE, busy_at=after(-1800))


def test_a_lease_is_idle_since_the_last_of_its_cgpus_and_its_path_was():
    rows = [whole(-7200), whole(-3600, position=1)]
    assert readings.idle_since(2, rows, [], NOON) == after(-3600)
    assert readings.idle_since(2, rows, [QUIET_PATH], NOON) == after(-1800)


@pytest.mark.parametrize(
    ("count", "rows", "paths"),
    [
        pytest.param(1, [whole(-60)], [], id="it was in use a minute ago"),
        pytest.param(1, [whole()], [path(resolution=WHOLE)], id="its path is in use"),
        pytest.param(2, [whole()], [], id="of one of its cGPUs nothing is known"),
        pytest.param(1, [whole(at=-3000)], [], id="its GPU host is silent"),
        pytest.param(1, [], [QUIET_PATH], id="of its cGPU nothing is known"),
    ],
)
def test_a_lease_is_not_idle_if(count, rows, paths):
    assert readings.idle_since(count, rows, paths, NOON) is None


def test_a_pause_is_not_idleness():
    pause = IDLE_AFTER.total_seconds()
    assert readings.idle_since(1, [whole(1 - pause)], [], NOON) is None
    assert readings.idle_since(1, [whole(-pause)], [], NOON) == after(-pause)
