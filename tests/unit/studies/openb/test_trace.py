# SPDX-License-Identifier: Apache-2.0
"""The trace, the order of its tasks, and one run of it."""

from __future__ import annotations

import random

import pytest

from studies.openb import local, schedulers, trace
from studies.openb.arrivals import draw_arrivals
from studies.openb.trace import Task

CAPACITY = 6_212_000


@pytest.fixture(scope="module")
def nodes():
    return trace.nodes()


def test_the_nodes_are_those_that_were_published(nodes):
    assert len(nodes) == 1213
    assert sum(node.gpus for node in nodes) == 6212
    assert sum(node.cpu for node in nodes) == 107_018_000


def test_the_tasks_are_those_that_were_published():
    tasks = trace.tasks("default")
    assert len(tasks) == 8152
    assert sum(task.gpus == 1 and task.milli < 1000 for task in tasks) == 3078


def test_there_are_ten_published_runs_of_six_schedulers_on_three_workloads():
    runs = {(run.workload, run.scheduler, run.seed) for run in trace.published()}
    assert len(runs) == 180
    assert {scheduler.name for scheduler in schedulers.SCHEDULERS} == {name for _, name, _ in runs}


@pytest.mark.parametrize("workload", trace.WORKLOADS)
def test_arrivals_ask_for_the_load_and_not_for_more(workload):
    coming = draw_arrivals(trace.tasks(workload), CAPACITY, 1.3, random.Random(42))
    asked = sum(task.total_milli for task in coming)
    assert 1.3 * CAPACITY - 8000 < asked <= 1.3 * CAPACITY + 7000


def test_too_many_arrivals_lose_some():
    tasks = [Task(1, 1, 1, 1000) for _ in range(10)]
    assert len(draw_arrivals(tasks, 1000, 4.5, random.Random(1))) == 4


def test_a_seed_decides_everything(nodes):
    tasks = trace.tasks("multigpu20")[:500]
    runs = [local.run(nodes[:60], tasks, schedulers.FgdScheduler, seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_whole_run_is_as_published(nodes):
    """One of the ten runs of the recipe; single runs vary by about 0.2 points."""
    curve = local.run(nodes, trace.tasks("default"), schedulers.FgdScheduler, 42)
    assert curve.allocated_at(100) == pytest.approx(95.23, abs=0.5)
    assert curve.allocated_at(130) == pytest.approx(95.39, abs=0.5)
