# SPDX-License-Identifier: Apache-2.0
"""Rigid, moldable, malleable and flexible jobs on 128 cGPUs (thesis, section 7.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from studies.claims import (
    PublishedClaim,
    Verdict,
    all_of,
    at_least,
    band_text,
    near,
    sample,
)
from studies.hpc import malleable
from studies.hpc.malleable import JobKind, MalleableSimulation

SEEDS = range(1, 11)
GPUS = 128
SIZES = (100, 250, 500, 1000, 2000)
SOURCE = "Iserte, PhD thesis, 2018, section 7.3.{}"
ASSUMPTIONS = "how long the applications run and how far they scale are assumptions of ours"


@dataclass(frozen=True)
class MalleableRow:
    """*jobs* jobs of one kind, in the mean of several job sets. Times are means in seconds.

    *completion_spread* is the standard deviation of the job sets, *changes* how often jobs were resized.
    """

    jobs: int
    kind: str
    makespan: float
    wait: float
    execution: float
    completion: float
    completion_spread: float
    allocated_percent: float
    energy_kwh: float
    changes: float

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the benchmark prints it."""
        return asdict(self)


@dataclass(frozen=True)
class MalleableSetting:
    """One row to measure: how many jobs of which kind, on how many cGPUs, and the job sets to run."""

    jobs: int
    kind: JobKind
    gpus: int
    seeds: tuple[int, ...]


def settings(
    sizes: Sequence[int] = SIZES, seeds: Sequence[int] = SEEDS, gpus: int = GPUS
) -> list[MalleableSetting]:
    """Return the settings of workloads of all *sizes*, with every kind of jobs."""
    return [MalleableSetting(size, kind, gpus, tuple(seeds)) for size in sizes for kind in JobKind]


def measure(setting: MalleableSetting) -> MalleableRow:
    """Run one setting with every seed; return its row."""
    outcomes = [
        MalleableSimulation(malleable.jobs(setting.jobs, seed), setting.gpus, setting.kind).run()
        for seed in setting.seeds
    ]
    records = [record for outcome in outcomes for record in outcome.records]
    completion = sample(
        outcomes,
        lambda outcome: mean(record.end - record.arrival for record in outcome.records),
    )
    return MalleableRow(
        setting.jobs,
        str(setting.kind),
        mean(outcome.makespan for outcome in outcomes),
        mean(record.start - record.arrival for record in records),
        mean(record.end - record.start for record in records),
        completion.mean,
        completion.spread,
        mean(outcome.allocated_percent for outcome in outcomes),
        mean(outcome.energy_kwh for outcome in outcomes),
        sum(record.changes for record in records) / len(outcomes),
    )


def run(
    sizes: Sequence[int] = SIZES,
    seeds: Sequence[int] = SEEDS,
    progress: Callable[[str], object] = str,
    gpus: int = GPUS,
) -> Iterator[MalleableRow]:
    """Run workloads of every size with every kind of jobs, drawn with every seed; yield a row for each."""
    for setting in settings(sizes, seeds, gpus):
        progress(f"{setting.jobs} jobs, {setting.kind}")
        yield measure(setting)


def claims(rows: Sequence[MalleableRow]) -> Iterator[PublishedClaim]:
    """Yield the claims of section 7.3, with what was measured on the largest workload of at most 1,000 jobs."""
    size = max((row.jobs for row in rows if row.jobs <= 1000), default=rows[0].jobs)
    here = {row.kind: row for row in rows if row.jobs == size}
    fixed, moldable, malleable_row, flexible = (here[str(kind)] for kind in JobKind)
    factor = fixed.completion / malleable_row.completion
    yield PublishedClaim(
        "malleable jobs, submitted rigid, complete sooner",
        SOURCE.format(3),
        "over 3 times",
        f"{factor:.1f} times",
        at_least(factor, 3, none=1),
        "> 3 times",
        ASSUMPTIONS,
    )
    factor = moldable.completion / flexible.completion
    yield PublishedClaim(
        "malleable jobs, submitted moldable, complete sooner",
        SOURCE.format(3),
        "1.5 times",
        f"{factor:.1f} times",
        near(factor, 1.5, none=1),
        band_text(),
        ASSUMPTIONS,
    )
    longer = moldable.execution / fixed.execution
    yield PublishedClaim(
        "moldable jobs run longer once they are many",
        SOURCE.format(3),
        "execution time grows with the queue",
        f"{longer:.2f} times that of rigid ones",
        Verdict.REPRODUCED if longer > 1 else Verdict.REFUTED,
        "> 1 times",
    )
    saved = [
        100 * (1 - row.energy_kwh / fixed.energy_kwh) for row in (malleable_row, moldable, flexible)
    ]
    yield PublishedClaim(
        "malleable, moldable and flexible jobs save energy",
        SOURCE.format(4),
        "up to around 70 %, 50 to 60 %, almost 80 %",
        "{:.0f} %, {:.0f} %, {:.0f} %".format(*saved),
        all_of(
            [near(mine, theirs) for mine, theirs in zip(saved, (70.0, 55.0, 80.0), strict=True)]
        ),
        band_text(),
        ASSUMPTIONS,
    )
