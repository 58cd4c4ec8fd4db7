# SPDX-License-Identifier: Apache-2.0
"""Fragments for each kind of task, computed by hand."""

from __future__ import annotations

import pytest

from studies.openb.fragmentation import Fragmentation, TaskKind, typical_mix
from studies.openb.trace import Task

HALF = TaskKind(4000, 1, 500)
HALF_OF_A_T4 = TaskKind(4000, 1, 500, ("T4",))
WHOLE = TaskKind(8000, 1, 1000)
TWO = TaskKind(8000, 2, 1000)
NO_GPU = TaskKind(1000, 0, 0)


@pytest.mark.parametrize(
    ("mix", "cpu", "gpus", "expected"),
    [
        pytest.param({HALF: 1.0}, 4000, (1000, 1000), 0, id="all of it is of use"),
        pytest.param({HALF: 1.0}, 4000, (400, 1000), 400, id="a GPU too full for it"),
        pytest.param({HALF: 1.0}, 3999, (400, 1000), 1400, id="its node lacks CPU"),
        pytest.param({TWO: 1.0}, 8000, (600, 1000), 1600, id="its node lacks free GPUs"),
        pytest.param({TWO: 1.0}, 8000, (600, 1000, 1000), 600, id="two are free, one is not"),
        pytest.param({NO_GPU: 1.0}, 8000, (300, 1000), 1300, id="a task without a GPU uses none"),
        pytest.param({HALF: 0.5, WHOLE: 0.5}, 8000, (600, 1000), 300, id="the mean of 0 and 600"),
        pytest.param({HALF: 0.5, WHOLE: 0.5}, 4000, (1000,), 500, id="CPU for one of two kinds"),
        pytest.param({HALF: 1.0}, 9000, (0, 0), 0, id="where nothing is free nothing is lost"),
    ],
)
def test_the_fragmentation_of_a_node(mix, cpu, gpus, expected):
    assert Fragmentation(mix.items()).of_node(cpu, gpus) == pytest.approx(expected)


@pytest.mark.parametrize(("model", "fragments"), [("T4", 0), ("P100", 500)])
def test_what_is_free_on_a_gpu_of_another_model_is_a_fragment(model, fragments):
    mix = {HALF: 0.5, HALF_OF_A_T4: 0.5}
    assert Fragmentation(mix.items(), model).of_node(8000, (1000,)) == pytest.approx(fragments)


def test_tasks_that_allow_other_models_are_of_another_kind():
    tasks = [Task(4000, 1, 1, 500)] * 3 + [Task(4000, 1, 1, 500, ("T4",))]
    assert typical_mix(tasks) == [(HALF, 0.75), (HALF_OF_A_T4, 0.25)]


def test_the_most_frequent_kinds_stand_for_the_workload():
    tasks = [Task(1000, 1, 1, 500)] * 15 + [Task(2000, 1, 1, 1000)] * 4 + [Task(9000, 1, 8, 1000)]
    assert typical_mix(tasks, coverage=0.95) == [
        (TaskKind(1000, 1, 500), 15 / 19),
        (TaskKind(2000, 1, 1000), 4 / 19),
    ]


def test_all_kinds_are_kept_when_the_rarest_is_needed():
    tasks = [Task(1000, 1, 1, 500)] * 9 + [Task(2000, 1, 1, 1000)]
    assert sum(share for _, share in typical_mix(tasks, coverage=0.95)) == pytest.approx(1)
