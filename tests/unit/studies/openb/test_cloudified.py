# SPDX-License-Identifier: Apache-2.0
"""Tasks whose GPUs may be on any node, and how far moving them could go."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas.sim import policies
from studies.openb import cloudified, costs, repacked
from studies.openb.costs import RemoteCosts, Use
from studies.openb.sizes import MIB, THOUSANDTHS
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
    assert repacked.gpus_needed(Counter(shares)) == gpus


@given(
    st.lists(st.integers(1, 1000), max_size=40)
    | st.lists(st.sampled_from([190, 333, 500, 810]), max_size=60)
)
def test_packing_equal_shares_together_is_packing_one_after_the_other(shares: list[int]):
    free: list[int] = []
    for share in sorted(shares, reverse=True):
        fits = [one for one in free if one >= share]
        if fits:
            free.remove(min(fits))
        free.append((min(fits) if fits else 1000) - share)
    assert repacked.gpus_needed(Counter(shares)) == len(free)


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


CORES = RemoteCosts(1000)


def test_a_node_without_cpu_for_a_daemon_lends_nothing():
    """Each task fills the CPU of its node; two GPUs of each node stay, which nobody can lend."""
    nodes = [OpenbNode(f"gpu{number}", 8000, 1024, 3, "T4") for number in range(3)]
    tasks = [Task(8000, 1, 1, 1000)]
    policy = policies.load("first-local")
    assert cloudified.run(nodes, tasks, policy, 1, costs=CORES).cgpus == 3
    wide = [Task(8000, 1, 4, 1000)]
    assert cloudified.run(nodes, wide, policy, 1).cgpus == 8
    all_cpu = RemoteCosts(8000)
    outcome = cloudified.run(nodes, wide, policy, 1, costs=all_cpu)
    assert (outcome.cgpus, outcome.remote) == (4, 1)


def test_daemons_of_one_request_share_the_cpu_of_the_lender():
    """The lender has CPU for one daemon and four GPUs; the task wants two of them."""
    nodes = [OpenbNode("cpu", 8000, 1024, 0, ""), OpenbNode("gpu", 1500, 1024, 4, "T4")]
    tasks = [Task(8000, 1, 2, 1000)]
    policy = policies.load("first-fit")
    assert cloudified.run(nodes, tasks, policy, 1, costs=CORES).cgpus == 0
    assert cloudified.run(nodes, tasks, policy, 1, costs=RemoteCosts(500)).cgpus == 2


@pytest.mark.parametrize("sizes", [THOUSANDTHS, MIB])
def test_where_fgd_chooses_the_node_local_gradient_takes_local_gpus(sizes):
    nodes = [OpenbNode(f"gpu{number}", 32_000, 65_536, 4, "T4") for number in range(4)]
    tasks = [Task(4000, 1024, 1, 1000), Task(4000, 1024, 2, 1000), Task(2000, 1024, 1, 500)]
    outcome = cloudified.run(
        nodes, tasks, policies.load("local-gradient"), 1, sizes, CORES, by_fgd=True
    )
    assert outcome.curve.allocated[-1] > 90
    assert outcome.remote < outcome.cgpus / 4


def test_a_guest_slows_down_with_what_crosses_its_card():
    """Alone on 56 Gbit/s a whole remote GPU is slower by its calls alone; two on one card share it."""
    alone = Use("a", ("b",), 1000)
    calls = costs.CALLS * (50.62e-6 + 1.2e-6 - 10e-6)
    card = costs.BYTES / 7e9 * 0.03
    assert costs.slowdowns([alone], 56) == [pytest.approx(1 + calls + card)]
    two = costs.slowdowns([alone, Use("c", ("b",), 1000)], 56)
    assert two == [pytest.approx(1 + calls + card + costs.BYTES / 7e9 * 1.03)] * 2
    assert costs.slowdowns([Use("a", ("a", "a"), 500)], 56) == [1.0]
