# SPDX-License-Identifier: Apache-2.0
"""Each scheduler's choice on three small nodes, computed by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from studies.openb import schedulers
from studies.openb.cluster import OpenbCluster
from studies.openb.fragmentation import TaskKind
from studies.openb.sizes import MEMORY_MB, MIB
from studies.openb.trace import OpenbNode, Task

NODES = [
    OpenbNode("small", 16_000, 65_536, 1, "T4"),
    OpenbNode("middle", 64_000, 65_536, 2, "T4"),
    OpenbNode("large", 128_000, 65_536, 8, "T4"),
]
HALF = Task(4000, 1024, 1, 500)
ONE = Task(8000, 1024, 1, 1000)
TWO = Task(8000, 1024, 2, 1000)
NO_GPU = Task(32_000, 1024, 0, 0)


@pytest.fixture
def cluster() -> OpenbCluster:
    """With half of one GPU taken on the node in the middle."""
    cluster = OpenbCluster(NODES)
    cluster.place(HALF, 1, [1])
    return cluster


def make_scheduler(name: str, cluster: OpenbCluster) -> schedulers.Scheduler:
    kinds = {scheduler.name: scheduler for scheduler in schedulers.SCHEDULERS}
    mix = [(TaskKind(4000, 1, 500), 0.5), (TaskKind(8000, 2, 1000), 0.5)]
    scheduler = kinds[name](cluster, mix, random.Random(1))
    if len(cluster.nodes) > 2:
        scheduler.task_placed(HALF, 1)
    return scheduler


@pytest.mark.parametrize(
    ("name", "task", "expected"),
    [
        # (16/128 * 4/128 + 1/8 * 0.5/8) / 2 is least on the smallest node
        ("DotProd", HALF, (0, [0])),
        ("BestFit", HALF, (0, [0])),
        ("BestFit", TWO, (2, [0, 1])),
        # the only node that holds tasks that share GPUs
        ("GpuClustering", HALF, (1, [1])),
        # no node holds tasks of one whole GPU: an idle one, the one with least free
        ("GpuClustering", ONE, (0, [0])),
        # a GPU in use before an idle one
        ("GpuPacking", HALF, (1, [1])),
        # an idle GPU of a node in use before an idle node
        ("GpuPacking", ONE, (1, [0])),
        # tasks of two GPUs can use neither small nor middle: 500 -> 250 and 750 -> 500 fragments, of equals the first
        ("FGD", HALF, (0, [0])),
        ("FGD", TWO, (2, [0, 1])),
    ],
)
def test_the_choice(cluster: OpenbCluster, name: str, task: Task, expected):
    assert make_scheduler(name, cluster).choose(task) == expected


@pytest.mark.parametrize("scheduler", schedulers.SCHEDULERS, ids=lambda kind: kind.name)
class TestEvery:
    def test_a_task_without_a_gpu_needs_none(self, cluster, scheduler):
        node, gpus = make_scheduler(scheduler.name, cluster).choose(NO_GPU)
        assert node in (1, 2)
        assert list(gpus) == []

    def test_a_task_that_fits_nowhere_is_rejected(self, cluster, scheduler):
        assert make_scheduler(scheduler.name, cluster).choose(Task(1000, 1, 8, 1000)) is not None
        cluster.place(ONE, 2, [3])
        assert make_scheduler(scheduler.name, cluster).choose(Task(1000, 1, 8, 1000)) is None

    def test_a_task_runs_on_no_model_that_it_does_not_allow(self, scheduler):
        cluster = OpenbCluster(
            [replace(NODES[2], name=model, model=model) for model in ("P100", "T4")]
        )
        task = replace(HALF, models=("A10", "T4"))
        for _ in range(16):
            assert make_scheduler(scheduler.name, cluster).choose(task)[0] == 1
            cluster.place(task, 1, [int(cluster.free_milli[1].argmax())])
        assert make_scheduler(scheduler.name, cluster).choose(task) is None

    def test_no_gpu_is_over_committed_however_many_come(self, scheduler):
        cluster = OpenbCluster(NODES)
        scheduler_under_test = make_scheduler(scheduler.name, cluster)
        rng = random.Random(7)
        placed = 0
        for _ in range(60):
            task = rng.choice([HALF, ONE, TWO, NO_GPU])
            choice = scheduler_under_test.choose(task)
            if choice is not None:
                cluster.place(task, *choice)  # refuses what is not there
                scheduler_under_test.task_placed(task, choice[0])
                placed += task.total_milli
            assert cluster.used == placed
            assert cluster.node_free_milli.sum() + placed == cluster.capacity
            assert np.array_equal(cluster.node_free_milli, cluster.free_milli.sum(axis=1))


def test_what_is_kept_between_tasks_changes_no_choice():
    """FGD looks again only at nodes that changed; a scheduler that forgets everything chooses the same."""
    rng = random.Random(3)
    coming = [rng.choice([HALF, ONE, TWO, NO_GPU]) for _ in range(40)]
    cluster = OpenbCluster(NODES)
    keeping = make_scheduler("FGD", cluster)
    for task in coming:
        choice = keeping.choose(task)
        assert choice == make_scheduler("FGD", cluster).choose(task)
        if choice is not None:
            cluster.place(task, *choice)
            keeping.task_placed(task, choice[0])


def test_a_cluster_refuses_what_it_has_no_room_for(cluster: OpenbCluster):
    before = cluster.free_milli.copy()
    for task, node, gpus in ((ONE, 1, [1]), (TWO, 1, [0, 0]), (NO_GPU, 0, [])):
        with pytest.raises(ValueError, match="room"):
            cluster.place(task, node, gpus)
    assert np.array_equal(cluster.free_milli, before)


def test_in_mib_a_share_takes_less_of_a_larger_gpu():
    cluster = OpenbCluster(
        [OpenbNode("a", 16_000, 65_536, 1, "T4"), OpenbNode("b", 16_000, 65_536, 1, "V100M32")], MIB
    )
    half = MEMORY_MB["T4"] // 2
    assert [cluster.milli_on(500, node) for node in (0, 1)] == [500, -(-half * 1000 // 32_510)]
    cluster.place(HALF, 1, [0])
    cluster.place(ONE, 0, [0])
    assert cluster.used == half + MEMORY_MB["T4"]
    assert cluster.capacity == MEMORY_MB["T4"] + 32_510


def test_in_mib_fgd_counts_fragments_in_each_gpus_own_measure():
    """A share of 500 is 233 thousandths of the large GPU; the small one is of no use to tasks of two GPUs anyhow."""
    nodes = [OpenbNode("a", 16_000, 65_536, 1, "T4"), OpenbNode("b", 64_000, 65_536, 2, "V100M32")]
    cluster = OpenbCluster(nodes, MIB)
    node, gpus = make_scheduler("FGD", cluster).choose(HALF)
    assert (node, list(gpus)) == (0, [0])
