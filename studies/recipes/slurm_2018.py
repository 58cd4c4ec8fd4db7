# SPDX-License-Identifier: Apache-2.0
"""Remote GPUs under Slurm: three modes on two clusters, and the policies that choose GPUs (thesis, chapter 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from gsaas.gpgpums import policies
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.policies.fewer_jobs_node import FewerJobsNode
from studies.claims import PublishedClaim, all_of, at_most, band_text, near, sample
from studies.hpc import applications
from studies.hpc.slurm import (
    ONE_GPU_SERVER,
    SIXTEEN_NODES,
    GpuMode,
    SlurmCluster,
    SlurmOutcome,
    SlurmSimulation,
)

SEEDS = range(1, 11)
SOURCE = "Iserte, PhD thesis, 2018, section {}"
POLICIES = (
    "first-local",
    "first-remote",
    "worst-fit",
    "best-fit",
    "fewer-jobs-gpu",
    "fewer-jobs-node",
    "fewer-jobs-node first-remote",
)
"""Of section 4.3; fewer-jobs-node chooses within the host by worst-fit, its default, or by first-remote."""
ASSUMPTIONS = "which part of its time an application keeps a GPU busy, and what nodes draw, are assumptions of ours"
ALIKE = 10.0
"""Percent between the best and the worst policy up to which the variation counts as small."""


@dataclass(frozen=True)
class SlurmRow:
    """One job set in one mode, in the mean of several random orders. *makespan* in seconds, *gpu_utilisation* in
    percent.
    """

    cluster: str
    workload: str
    mode: str
    policy: str
    makespan: float
    makespan_spread: float
    """The standard deviation, in seconds."""
    gpu_utilisation: float
    energy_kwh: float
    remote: float

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the benchmark prints it."""
        return asdict(self)


SETS: Mapping[str, tuple[SlurmCluster, Mapping[str, Mapping[str, int]]]] = {
    "16 nodes": (SIXTEEN_NODES, applications.THROUGHPUT),
    "15 nodes and a server": (ONE_GPU_SERVER, applications.UPGRADE),
    "policies": (SIXTEEN_NODES, applications.POLICIES),
}
"""Name of an experiment -> its cluster and its sets of jobs: sections 4.1, 4.2 and 4.3."""


@dataclass(frozen=True)
class SlurmSetting:
    """One row to measure: the fields are those of the row, and the random orders to run."""

    cluster: str
    workload: str
    mode: GpuMode
    policy: str
    seeds: tuple[int, ...]


def settings(seeds: Sequence[int] = SEEDS) -> list[SlurmSetting]:
    """Return every job set in every mode, then every set of section 4.3 under every policy.

    The jobs of a set are submitted in the random orders of *seeds*.
    """
    return [
        *(
            SlurmSetting(name, workload, mode, "first-remote", tuple(seeds))
            for name in ("16 nodes", "15 nodes and a server")
            for workload in SETS[name][1]
            for mode in GpuMode
        ),
        *(
            SlurmSetting("policies", workload, GpuMode.SHARED, policy, tuple(seeds))
            for workload in applications.POLICIES
            for policy in POLICIES
        ),
    ]


def run(
    chosen: Sequence[SlurmSetting], progress: Callable[[str], object] = str
) -> Iterator[SlurmRow]:
    """Run the settings that were *chosen*; yield a row for each."""
    for setting in chosen:
        progress(f"{setting.cluster}, {setting.workload}, {setting.mode}, {setting.policy}")
        yield measure(setting)


def measure(setting: SlurmSetting) -> SlurmRow:
    """Run one setting with every seed; return its row."""
    cluster, sets = SETS[setting.cluster]
    outcomes: list[SlurmOutcome] = []
    for seed in setting.seeds:
        jobs = applications.job_set(sets[setting.workload], seed)
        outcomes.append(SlurmSimulation(jobs, cluster, setting.mode, _policy(setting.policy)).run())
    makespan = sample(outcomes, lambda outcome: outcome.makespan)
    return SlurmRow(
        setting.cluster,
        setting.workload,
        str(setting.mode),
        setting.policy if setting.mode is not GpuMode.CUDA else "",
        makespan.mean,
        makespan.spread,
        mean(outcome.gpu_utilisation for outcome in outcomes),
        mean(outcome.energy_kwh for outcome in outcomes),
        mean(outcome.remote for outcome in outcomes),
    )


def _policy(name: str) -> Policy:
    """Return the policy *name*, which may be followed by the one that fewer-jobs-node chooses by within the host."""
    name, _, inside = name.partition(" ")
    return FewerJobsNode(policies.load(inside)) if inside else policies.load(name)


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
            all_of(
                [
                    near(_less(cuda.makespan, shared.makespan), time),
                    near(_less(cuda.energy_kwh, shared.energy_kwh), energy),
                ]
            ),
            band_text(),
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
            near(factor, 2, none=1),
            band_text(),
        )
    best = [_modes(rows, "15 nodes and a server", workload) for workload in applications.UPGRADE]
    time = max(_less(cuda.makespan, shared.makespan) for cuda, _, shared in best)
    energy = max(_less(cuda.energy_kwh, shared.energy_kwh) for cuda, _, shared in best)
    yield PublishedClaim(
        "one server with four GPUs upgrades a cluster without any",
        SOURCE.format("4.2"),
        "up to 70 % less time, half the energy",
        f"up to {time} % less time, {energy} % less energy",
        all_of([near(time, 70), near(energy, 50)]),
        band_text(),
        ASSUMPTIONS,
    )
    used = {
        workload: shared.gpu_utilisation / cuda.gpu_utilisation
        for workload, (cuda, _, shared) in zip(applications.UPGRADE, best, strict=True)
    }
    yield PublishedClaim(
        "one server with four GPUs: shared remote GPUs are used more",
        SOURCE.format("4.2"),
        "doubled",
        ", ".join(f"{workload}: {factor:.1f} times" for workload, factor in used.items()),
        all_of([near(factor, 2, none=1) for factor in used.values()]),
        band_text(),
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
            at_most(spread, ALIKE),
            f"≤ {ALIKE:g} % apart",
            "policies that fill a GPU first slow down all jobs that share it"
            if spread > ALIKE
            else "",
        )


def _modes(rows: Sequence[SlurmRow], cluster: str, workload: str) -> list[SlurmRow]:
    """Return the rows of one workload, in the order of `GpuMode`."""
    return [row for row in rows if (row.cluster, row.workload) == (cluster, workload)]


def _less(before: float, after: float) -> int:
    """Return by how many percent *after* is less than *before*, rounded."""
    return round(100 * (1 - after / before))
