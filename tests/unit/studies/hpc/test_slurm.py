# SPDX-License-Identifier: Apache-2.0
"""Small sets of jobs on small clusters, computed by hand."""

from __future__ import annotations

import pytest

from gsaas.gpgpums.pool import Pool
from studies.hpc import applications
from studies.hpc.applications import CORES, SlurmApplication
from studies.hpc.slurm import (
    CORE_BUSY_W,
    GPU_BUSY_W,
    GPU_IDLE_W,
    GPU_MEMORY_MB,
    GPU_SHARE,
    NODE_IDLE_W,
    ONE_GPU_SERVER,
    REMOTE_OVERHEAD,
    SIXTEEN_NODES,
    GpuMode,
    SlurmCluster,
    SlurmOutcome,
    SlurmSimulation,
)

TWO_NODES = SlurmCluster((1, 1))
SMALL = SlurmApplication("small", 1, 1, 100, 1000)
WIDE = SlurmApplication("wide", 2, 1, 100, 1000)
CPU = SlurmApplication("cpu", 1, CORES, 100)
REMOTE_FACTOR = 1 + REMOTE_OVERHEAD


def run(
    mode: GpuMode, *jobs: SlurmApplication, cluster: SlurmCluster = TWO_NODES, **how: str
) -> SlurmOutcome:
    return SlurmSimulation(jobs, cluster, mode, **how).run()


def test_with_cuda_a_node_full_of_cpu_jobs_blocks_its_gpu():
    assert run(GpuMode.CUDA, CPU, SMALL, SMALL).makespan == 200


def test_a_remote_gpu_of_that_node_serves_others():
    outcome = run(GpuMode.EXCLUSIVE, CPU, SMALL, SMALL, policy="first-fit")
    assert outcome.makespan == pytest.approx(100 * REMOTE_FACTOR)
    assert outcome.remote == 1


def test_shared_gpus_run_as_many_jobs_as_their_memory_allows():
    outcome = run(GpuMode.SHARED, *[SMALL] * 8, policy="least-load-fit")
    assert outcome.mean_wait == 0
    assert run(GpuMode.EXCLUSIVE, *[SMALL] * 8, policy="first-fit").mean_wait > 0


def test_jobs_that_share_a_gpu_slow_down_when_they_need_more_than_its_time():
    few, many = int(1 / GPU_SHARE), int(1 / GPU_SHARE) + 2
    one = SlurmCluster((1,))
    thin = SlurmApplication("thin", 1, 1, 100, GPU_MEMORY_MB // many)
    assert run(GpuMode.SHARED, *[thin] * few, cluster=one, policy="first-fit").makespan == 100
    assert run(
        GpuMode.SHARED, *[thin] * many, cluster=one, policy="first-fit"
    ).makespan == pytest.approx(100 * many * GPU_SHARE)


def test_the_last_job_that_ends_ends_the_run():
    """Eight processes on one GPU take twice their time; four go on alone once LAMMPS has run 2 * 15 s, and end sooner.

    mCUDA-MEME has 150 of its 165 s to go then; the GPU is remote.
    """
    jobs = applications.job_set({"mCUDA-MEME": 1, "LAMMPS": 1}, 1)
    outcome = run(GpuMode.SHARED, *jobs, cluster=SIXTEEN_NODES)
    assert outcome.makespan == pytest.approx((2 * 15 + 150) * REMOTE_FACTOR)  # 187.2
    assert outcome.gpu_utilisation == pytest.approx(100 / 16)


def test_processes_of_a_cuda_job_are_on_nodes_of_their_own_unless_they_belong_together():
    together = SlurmApplication("together", 2, 1, 100, 1000, same_node=True)
    assert run(GpuMode.CUDA, WIDE).makespan == 100
    with pytest.raises(ValueError, match="together fits nowhere in mode CUDA"):
        run(GpuMode.CUDA, together)
    assert run(GpuMode.CUDA, together, cluster=SlurmCluster((0, 2))).makespan == 100


def test_energy_and_utilisation_add_up():
    outcome = run(GpuMode.CUDA, SMALL, SMALL)
    watts = 2 * (NODE_IDLE_W + CORE_BUSY_W + GPU_IDLE_W + GPU_SHARE * GPU_BUSY_W)
    assert outcome.energy_kwh == pytest.approx(watts * 100 / 3.6e6)
    assert outcome.gpu_utilisation == pytest.approx(100 * GPU_SHARE)


@pytest.mark.parametrize("mode", GpuMode)
@pytest.mark.parametrize("cluster", [SIXTEEN_NODES, ONE_GPU_SERVER], ids=["sixteen", "one server"])
def test_nothing_is_lost_after_any_event(mode: GpuMode, cluster: SlurmCluster):
    workload = (
        applications.THROUGHPUT["Set 1"]
        if cluster is SIXTEEN_NODES
        else applications.UPGRADE["WL1"]
    )
    jobs = applications.job_set(workload, 1)[:120]

    def check(pool: Pool, free_cores: list[int]) -> None:
        assert all(0 <= free <= CORES for free in free_cores)
        assert all(0 <= gpu.used_mb <= gpu.memory_mb for gpu in pool)

    simulation = SlurmSimulation(jobs, cluster, mode, "first-fit", check)
    simulation.run()
    assert simulation.free_cores == [CORES] * len(cluster.gpus)
    assert all(gpu.used_mb == 0 for gpu in simulation.pool)


@pytest.mark.parametrize(
    "sets", [applications.THROUGHPUT, applications.UPGRADE, applications.POLICIES]
)
def test_each_set_has_400_jobs(sets):
    assert {len(applications.job_set(counts, 1)) for counts in sets.values()} == {400}
