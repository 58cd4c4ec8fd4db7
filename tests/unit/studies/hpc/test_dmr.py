# SPDX-License-Identifier: Apache-2.0
"""When jobs resize through the DMR API (thesis, chapter 6), computed by hand."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from studies.hpc import dmr
from studies.hpc.malleable import (
    EXPAND_TIMEOUT,
    RESIZE_SECONDS,
    JobKind,
    MalleableApplication,
    MalleableJob,
    MalleableOutcome,
    MalleableSimulation,
    ResizeRule,
)

PREFERS_4 = MalleableApplication(
    "prefers 4", 1, 4, 16, period=10, iterations=1, serial=0, seconds=1
)
SLEEP = MalleableApplication("sleep", 1, 16, 16, None, iterations=10, serial=0.0, seconds=100)
"""1,600 s on one node; ten steps."""


@pytest.mark.parametrize(
    ("count", "idle", "needs", "expected"),
    [
        pytest.param(4, 12, [], 16, id="alone it grows to the greatest"),
        pytest.param(4, 11, [], 8, id="by doubling only"),
        pytest.param(
            16, 0, [20], 4, id="while another waits it shrinks, although that gains nothing"
        ),
        pytest.param(1, 2, [20], 2, id="or grows as far as it may"),
        pytest.param(1, 12, [20], 4, id="to what it prefers and not beyond"),
        pytest.param(4, 12, [20], 4, id="and stays there"),
    ],
)
def test_a_job_with_a_preference(count: int, idle: int, needs: list[int], expected: int):
    assert dmr.choose_preferred(PREFERS_4, count, idle, needs) == expected


@pytest.mark.parametrize(
    ("count", "idle", "needs", "expected"),
    [
        pytest.param(8, 0, [4], 4, id="it shrinks if another can start then"),
        pytest.param(8, 1, [9, 7], 2, id="as far as that takes"),
        pytest.param(8, 0, [8], 8, id="and not for a job that cannot"),
        pytest.param(8, 8, [20], 16, id="then it grows"),
        pytest.param(8, 8, [], 16, id="as it does alone"),
        pytest.param(3, 0, [1], 3, id="what cannot be halved stays"),
    ],
)
def test_a_job_without_a_preference(count: int, idle: int, needs: list[int], expected: int):
    assert dmr.choose_widely(SLEEP, count, idle, needs) == expected


def ran(
    rule: ResizeRule, *jobs: MalleableJob, nodes: int = 16, asynchronous: bool = False
) -> MalleableOutcome:
    return MalleableSimulation(
        jobs, nodes, JobKind.MALLEABLE, rule=rule, asynchronous=asynchronous
    ).run()


def test_a_job_makes_room_for_another_and_grows_again_when_that_has_ended():
    """The first has 10 s steps on 16 nodes. At 10 s it halves; the second, of 8 nodes and 20 s, ends at 30."""
    short = MalleableApplication("short", 8, 8, 8, None, 1, 0.0, 20.0)
    outcome = ran(dmr.ALGORITHM_3, MalleableJob(0, 0, SLEEP), MalleableJob(1, 5, short))
    first, second = outcome.records
    assert (second.start, second.end) == (10, 30)
    # from 11 s on 8 nodes: at 30 s it is in its step of 20 s, which began at 10; then it doubles
    done = 10 * 16 + 19 * 8
    assert first.end == pytest.approx(30 + RESIZE_SECONDS + (1600 - done) / 16)
    assert first.changes == 2


def test_one_step_late_it_makes_room_one_step_later():
    short = MalleableApplication("short", 8, 8, 8, None, 1, 0.0, 20.0)
    outcome = ran(
        dmr.ALGORITHM_3, MalleableJob(0, 0, SLEEP), MalleableJob(1, 5, short), asynchronous=True
    )
    _, second = outcome.records
    assert second.start == 20


def test_one_step_late_it_waits_in_vain_for_nodes_that_were_taken():
    """At 20 s it decides to double; at 25 s another job takes the nodes; at 40 s it stops for the timeout."""
    half = MalleableApplication("half", 1, 16, 16, None, 10, 0.0, 100.0, submitted=8)
    other = MalleableApplication("other", 8, 8, 8, None, 1, 0.0, 500.0)
    outcome = ran(
        dmr.ALGORITHM_3, MalleableJob(0, 0, half), MalleableJob(1, 25, other), asynchronous=True
    )
    first, second = outcome.records
    assert second.start == 25
    assert first.changes == 0
    assert first.end == pytest.approx(1600 / 8 + EXPAND_TIMEOUT)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_every_node_is_held_once_and_every_job_ends(asynchronous: bool):
    def check(idle: int, held: int) -> None:
        assert idle >= 0
        assert idle + held == dmr.SYNTHETIC_NODES

    outcome = MalleableSimulation(
        dmr.synthetic_jobs(60, seed=2),
        dmr.SYNTHETIC_NODES,
        JobKind.MALLEABLE,
        check,
        rule=dmr.ALGORITHM_3,
        asynchronous=asynchronous,
    ).run()
    assert [record.job for record in outcome.records] == list(range(60))
    held = sum(record.gpu_seconds for record in outcome.records)
    total = outcome.allocated_percent / 100 * dmr.SYNTHETIC_NODES * outcome.makespan
    assert held == pytest.approx(total)


def test_the_workloads_are_as_described():
    three = dmr.jobs(300, seed=1)
    counts = Counter(job.application.name for job in three)
    assert counts == {"CG": 100, "Jacobi": 100, "N-body": 100}
    assert three == dmr.jobs(300, seed=1) != dmr.jobs(300, seed=2)
    synthetic = dmr.synthetic_jobs(2000, seed=1)
    assert all(before.arrival < after.arrival for before, after in pairwise(synthetic))
    sizes = Counter(job.application.submitted for job in synthetic)
    assert sizes[1] > sizes[2] > sizes[4] > sizes[3]
    longest = dmr.STEPS * dmr.LONGEST_STEP
    assert all(
        job.application.work <= longest * (job.application.submitted or 0) * 1.001
        for job in synthetic
    )
