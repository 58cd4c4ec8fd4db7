# SPDX-License-Identifier: Apache-2.0
"""Remote GPUs under Slurm: three modes on two clusters, and the policies that choose GPUs (thesis, chapter 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from studies.claims import PublishedClaim
from studies.hpc import applications
from studies.hpc.slurm import (
    ONE_GPU_SERVER,
    SIXTEEN_NODES,
    GpuMode,
    SlurmCluster,
    SlurmOutcome,
    SlurmSimulation,
)

SEED = 1
SOURCE = "Iserte, PhD thesis, 2018, section {}"
POLICIES = (
    "first-local",
    "first-remote",
    "worst-fit",
    "best-fit",
    "fewer-jobs-gpu",
    "fewer-jobs-node",
)
ASSUMPTIONS = "which part of its time an application keeps a GPU busy, and what nodes draw, are assumptions of ours"
ALIKE = 10.0
"""Percent between the best and the worst policy up to which the variation counts as small."""


@dataclass(frozen=True)
class SlurmRow:
    """One run of a job set. *makespan* in seconds, *gpu_utilisation* in percent."""

    cluster: str
    workload: str
    mode: str
    policy: str
    makespan: float
    gpu_utilisation: float
    energy_kwh: float
    remote: int

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the benchmark prints it."""
        return asdict(self)


def run(progress: Callable[[str], object] = str) -> Iterator[SlurmRow]:
    """Run every job set in every mode, then every set of section 4.3 under every policy; yield a row for each run."""
    for name, cluster, sets in (
        ("16 nodes", SIXTEEN_NODES, applications.THROUGHPUT),
        ("15 nodes and a server", ONE_GPU_SERVER, applications.UPGRADE),
    ):
        for workload in sets:
            for mode in GpuMode:
                progress(f"{name}, {workload}, {mode}")
                yield _row(name, cluster, workload, sets, mode, "first-remote")
    for workload in applications.POLICIES:
        for policy in POLICIES:
            progress(f"policies, {workload}, {policy}")
            yield _row(
                "policies", SIXTEEN_NODES, workload, applications.POLICIES, GpuMode.SHARED, policy
            )


def claims(rows: Sequence[SlurmRow]) -> Iterator[PublishedClaim]:
    """Yield the claims of chapter 4, with what was measured."""
    published = {"Set 1": (48, 40), "Set 2": (37, 25), "Set 1+2": (27, 15)}
    for workload, (time, energy) in published.items():
        cuda, exclusive, shared = _modes(rows, "16 nodes", workload)
        yield PublishedClaim(
            f"{workload}: shared remote GPUs shorten the whole and save energy",
            SOURCE.format("4.1.3"),
            f"{time} % and {energy} %",
            f"{_less(cuda.makespan, shared.makespan)} % and {_less(cuda.energy_kwh, shared.energy_kwh)} %; "
            f"exclusive ones {_less(cuda.makespan, exclusive.makespan)} %",
            shared.makespan < cuda.makespan and shared.energy_kwh < cuda.energy_kwh,
            ASSUMPTIONS,
        )
    for workload in ("Set 1", "Set 1+2"):
        cuda, _, shared = _modes(rows, "16 nodes", workload)
        factor = shared.gpu_utilisation / cuda.gpu_utilisation
        yield PublishedClaim(
            f"{workload}: shared remote GPUs are used more",
            SOURCE.format("4.1.3"),
            "doubled",
            f"{factor:.1f} times",
            factor > 1,
        )
    best = [_modes(rows, "15 nodes and a server", workload) for workload in applications.UPGRADE]
    time = max(_less(cuda.makespan, shared.makespan) for cuda, _, shared in best)
    energy = max(_less(cuda.energy_kwh, shared.energy_kwh) for cuda, _, shared in best)
    yield PublishedClaim(
        "one server with four GPUs upgrades a cluster without any",
        SOURCE.format("4.2"),
        "up to 70 % less time, half the energy",
        f"up to {time} % less time, {energy} % less energy",
        time > 0 and energy > 0,
        ASSUMPTIONS,
    )
    for workload in applications.POLICIES:
        here = [row for row in rows if (row.cluster, row.workload) == ("policies", workload)]
        fastest, slowest = (pick(here, key=lambda row: row.makespan) for pick in (min, max))
        spread = _less(slowest.makespan, fastest.makespan)
        yield PublishedClaim(
            f"{workload}: no policy wins by much",
            SOURCE.format("4.3"),
            "small variation in time; fewer jobs node and first remote slightly ahead",
            f"{fastest.policy} {spread} % ahead of {slowest.policy}",
            spread <= ALIKE,
            "policies that fill a GPU first slow down all jobs that share it"
            if spread > ALIKE
            else "",
        )


def _row(
    name: str,
    cluster: SlurmCluster,
    workload: str,
    sets: Mapping[str, Mapping[str, int]],
    mode: GpuMode,
    policy: str,
) -> SlurmRow:
    jobs = applications.job_set(sets[workload], SEED)
    outcome: SlurmOutcome = SlurmSimulation(jobs, cluster, mode, policy).run()
    return SlurmRow(
        name,
        workload,
        str(mode),
        policy if mode is not GpuMode.CUDA else "",
        outcome.makespan,
        outcome.gpu_utilisation,
        outcome.energy_kwh,
        outcome.remote,
    )


def _modes(rows: Sequence[SlurmRow], cluster: str, workload: str) -> list[SlurmRow]:
    """Return the rows of one workload, in the order of `GpuMode`."""
    return [row for row in rows if (row.cluster, row.workload) == (cluster, workload)]


def _less(before: float, after: float) -> int:
    """Return by how many percent *after* is less than *before*, rounded."""
    return round(100 * (1 - after / before))
