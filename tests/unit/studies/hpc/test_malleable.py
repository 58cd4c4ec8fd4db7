# SPDX-License-Identifier: Apache-2.0
"""When jobs grow and shrink, and what comes of it, computed by hand."""

from __future__ import annotations

import pytest

from studies.hpc import malleable
from studies.hpc.malleable import (
    RESIZE_SECONDS,
    JobKind,
    MalleableApplication,
    MalleableJob,
    MalleableSimulation,
    choose_size,
)

PERFECT = MalleableApplication("perfect", 2, 4, 8, period=10, iterations=5, serial=0, seconds=50)
"""400 s on one cGPU, 50 s on its greatest number."""
STUBBORN = MalleableApplication(
    "stubborn", 1, 1, 4, period=None, iterations=5, serial=0.5, seconds=10
)


@pytest.mark.parametrize(
    ("count", "idle", "needs", "expected"),
    [
        pytest.param(4, 8, [], 8, id="alone it grows to the greatest"),
        pytest.param(4, 2, [], 6, id="as far as cGPUs are idle"),
        pytest.param(8, 4, [], 8, id="the greatest is the greatest"),
        pytest.param(8, 0, [4], 4, id="it shrinks to the preferred if another can start then"),
        pytest.param(8, 0, [9, 3], 4, id="even one that is not the next"),
        pytest.param(8, 0, [5], 8, id="it does not shrink for nobody"),
        pytest.param(5, 2, [5], 7, id="but takes what is idle, although others wait"),
        pytest.param(4, 8, [20], 8, id="at the preferred, too"),
        pytest.param(2, 1, [2], 3, id="and below it"),
    ],
)
def test_the_reconfiguration_policy(count: int, idle: int, needs: list[int], expected: int):
    assert choose_size(PERFECT, count, idle, needs) == expected


def test_a_job_without_a_period_checks_after_each_iteration():
    assert PERFECT.check_interval(2) == 10
    assert STUBBORN.check_interval(4) == pytest.approx(10 / 5)
    assert STUBBORN.check_interval(1) == pytest.approx(16 / 5)


def test_a_job_speeds_up_by_amdahls_law():
    assert PERFECT.speed(8) == pytest.approx(8)
    assert STUBBORN.speed(2) == pytest.approx(1 / 0.75)
    assert STUBBORN.work == pytest.approx(10 * 1 / (0.5 + 0.125))


def starts_and_ends(kind: JobKind, *jobs: MalleableJob, gpus: int = 8) -> list[tuple[float, float]]:
    records = MalleableSimulation(jobs, gpus, kind).run().records
    return [(record.start, record.end) for record in records]


TWO = (MalleableJob(0, 0, PERFECT), MalleableJob(1, 5, PERFECT))


def test_rigid_jobs_run_one_after_the_other():
    assert starts_and_ends(JobKind.FIXED, *TWO) == [(0, 50), (50, 100)]


def test_moldable_jobs_take_what_is_there_and_keep_it():
    first, second = starts_and_ends(
        JobKind.MOLDABLE, MalleableJob(0, 0, PERFECT), MalleableJob(1, 5, PERFECT), gpus=11
    )
    assert first == (0, 50)
    assert second == (5, pytest.approx(5 + 400 / 3))


def test_a_malleable_job_does_not_shrink_where_nobody_could_start():
    """The second, submitted rigid, needs all 8, and shrinking would make room for 4."""
    assert starts_and_ends(JobKind.MALLEABLE, *TWO) == [(0, 50), (50, 100)]


def test_a_malleable_job_makes_room_at_its_next_check_and_grows_again():
    """At 10 s the first shrinks to 4, at 60 s it has 124 s to go and grows to 8."""
    (_, end), second = starts_and_ends(JobKind.MALLEABLE, *TWO, gpus=12)
    assert second == (10, 60)
    assert end == pytest.approx(60 + RESIZE_SECONDS + (320 - 49 * 4) / 8)


def test_the_job_that_room_was_made_for_starts_before_those_that_wait_for_longer():
    small = MalleableApplication("small", 1, 1, 1, period=10, iterations=1, serial=0, seconds=5)
    jobs = (*TWO, MalleableJob(2, 6, small))
    (_, _), (start, _), third = starts_and_ends(JobKind.MALLEABLE, *jobs)
    assert third == (10, 15)
    assert start > 15


def test_a_flexible_job_starts_in_the_room_that_was_made():
    """At 10 s the first shrinks to 4 and the second starts on the other 4: then no job waits, and no GPU is idle."""
    (_, first), (start, second) = starts_and_ends(JobKind.FLEXIBLE, *TWO)
    assert start == 10
    assert first == pytest.approx(10 + RESIZE_SECONDS + 320 / 4)
    # the second runs on 4 until 91 s, has 76 s to go, checks at 100 s and grows to 8
    assert second == pytest.approx(100 + RESIZE_SECONDS + (400 - 90 * 4) / 8)


@pytest.mark.parametrize("kind", JobKind)
def test_every_gpu_is_held_once_and_every_job_ends(kind: JobKind):
    coming = malleable.jobs(80, seed=4)

    def check(idle: int, held: int) -> None:
        assert idle >= 0
        assert idle + held == 64

    outcome = MalleableSimulation(coming, 64, kind, check).run()
    assert [record.job for record in outcome.records] == list(range(80))
    held = sum(record.gpu_seconds for record in outcome.records)
    assert held == pytest.approx(outcome.allocated_percent / 100 * 64 * outcome.makespan)


def test_a_seed_decides_everything():
    assert malleable.jobs(20, 1) == malleable.jobs(20, 1) != malleable.jobs(20, 2)


def test_a_job_larger_than_the_cluster_is_an_error():
    with pytest.raises(ValueError, match="fits nowhere"):
        MalleableSimulation([MalleableJob(0, 0, PERFECT)], 4, JobKind.FIXED).run()
