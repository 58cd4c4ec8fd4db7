# SPDX-License-Identifier: Apache-2.0
"""Tasks whose GPUs may be on any node, and how far moving them could go."""

from __future__ import annotations

import pytest

from gsaas.sim import policies
from studies.openb import cloudified, repacked
from studies.openb.sizes import MIB
from studies.openb.trace import OpenbNode, Task

NODES = [OpenbNode("cpu", 64_000, 65_536, 0, "")] + [
    OpenbNode(f"gpu{number}", 1000, 1024, 2, "T4") for number in range(3)
]
TASKS = [Task(8000, 1024, 1, 1000), Task(8000, 1024, 4, 1000), Task(4000, 1024, 1, 400)]


def run(policy: str = "first-fit", seed: int = 1) -> cloudified.CloudifiedOutcome:
    return cloudified.run(NODES, TASKS, policies.load(policy), seed)


def test_a_task_without_a_node_that_has_both_still_gets_its_gpus():
    """No node has a GPU and the CPU that these tasks need; between them they have all."""
    outcome = run()
    assert outcome.cgpus >= 6
    assert outcome.remote == outcome.cgpus
    assert set(outcome.remote_milli) == {"cpu"}
    allocated = outcome.curve.allocated[-1] * 60
    assert outcome.remote_milli.total() == outcome.lent_milli.total() == pytest.approx(allocated)


@pytest.mark.parametrize("policy", policies.names())
def test_free_and_allocated_gpus_add_up_under_every_policy(policy: str):
    outcome = run(policy)
    assert outcome.free_percent + outcome.curve.allocated[-1] == pytest.approx(100)
    assert sum(outcome.free) / 60 == pytest.approx(outcome.free_percent)


@pytest.mark.parametrize("policy", policies.names())
def test_a_seed_decides_everything(policy: str):
    assert run(policy, 5) == run(policy, 5)


@pytest.mark.parametrize(
    ("shares", "gpus"),
    [([], 0), ([1000], 1), ([600, 400, 600, 400], 2), ([810, 810, 190], 2), ([510, 510, 510], 3)],
)
def test_the_gpus_that_shares_need(shares: list[int], gpus: int):
    assert repacked.gpus_needed(shares) == gpus


def test_moving_tasks_makes_room_for_a_whole_gpu():
    """Two shares of 500, one on each GPU: where they stay no whole GPU is left; on one GPU they leave the other."""
    tasks = [Task(1, 1, 1, 500), Task(1, 1, 1, 1000)]
    nodes = [OpenbNode("a", 1000, 1000, 2, "T4")]
    curve = repacked.run(nodes, tasks, 3)
    assert max(curve.allocated) == 100


def test_in_mib_a_larger_gpu_holds_more_shares():
    """Two thirds of a T4's memory are a third of a V100's with 32 GB."""
    tasks = [Task(1, 1, 1, 666)]
    large = [OpenbNode("a", 1000, 1000, 2, "V100M32")]
    thousandths = cloudified.run(large, tasks, policies.load("first-fit"), 1)
    mib = cloudified.run(large, tasks, policies.load("first-fit"), 1, MIB)
    assert thousandths.cgpus == 2
    assert mib.cgpus == 3
    assert mib.curve.allocated[-1] == pytest.approx(100 * 3 * MIB.of_share(666) / (2 * 32_510))
