# SPDX-License-Identifier: Apache-2.0
"""Workloads of which not all jobs are malleable, on 128 cGPUs (thesis, section 7.3.5, Table 7.7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from studies.claims import PublishedClaim, all_of, band_text, near, sample
from studies.hpc import malleable
from studies.hpc.malleable import JobKind, MalleableJob, MalleableSimulation
from studies.recipes.malleable_2018 import ASSUMPTIONS, GPUS, SEEDS, SOURCE

JOBS = 1000
PARTS = (
    "None",
    "25%",
    "50%",
    "75%",
    "All",
    *(f"{one.name} only" for one in malleable.APPLICATIONS),
)
"""Which of the jobs are malleable: a part of all, in the order of their submission, or those of one application."""
SUBMISSIONS = {"rigid": JobKind.MALLEABLE, "moldable": JobKind.FLEXIBLE}
PUBLISHED = {
    "rigid": (100.0, 92.52, 73.49, 53.77, 36.12, 89.0, 105.67, 56.39, 101.77),
    "moldable": (38.82, 37.29, 33.55, 30.09, 25.15, 25.51, 43.44, 33.88, 38.40),
}
"""Table 7.7: percent of the time that the workload needs if all its jobs are fixed, in the order of `PARTS`."""
PUBLISHED_ALLOCATED = {
    "rigid": (96.37, 87.43, 87.07, 88.50, 87.29, 94.75, 88.34, 84.36, 93.06),
    "moldable": (91.23, 89.92, 88.97, 86.92, 94.57, 95.51, 92.81, 90.62, 91.80),
}
"""Table 7.7: percent of the cGPUs that are allocated."""


@dataclass(frozen=True)
class MixSetting:
    """One cell of the table to measure."""

    submission: str
    part: str
    seeds: tuple[int, ...]

    def is_malleable(self, job: MalleableJob) -> bool:
        """Return whether *job* may be resized."""
        if self.part.endswith("%"):
            return job.id % 4 < int(self.part[:-1]) // 25
        return self.part in ("All", f"{job.application.name} only")


@dataclass(frozen=True)
class MixRow:
    """One cell, in the mean of several job sets: *makespan* in seconds, *allocated_percent* of all cGPUs."""

    submission: str
    part: str
    makespan: float
    makespan_spread: float
    allocated_percent: float

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the benchmark prints it."""
        return asdict(self)


def settings(seeds: Sequence[int] = SEEDS) -> list[MixSetting]:
    """Return every cell of the table."""
    return [
        MixSetting(submission, part, tuple(seeds)) for submission in SUBMISSIONS for part in PARTS
    ]


def measure(setting: MixSetting, jobs: int = JOBS) -> MixRow:
    """Run one cell with every seed; return its row."""
    outcomes = [
        MalleableSimulation(
            malleable.jobs(jobs, seed),
            GPUS,
            SUBMISSIONS[setting.submission],
            is_malleable=setting.is_malleable,
        ).run()
        for seed in setting.seeds
    ]
    makespan = sample(outcomes, lambda outcome: outcome.makespan)
    allocated = sample(outcomes, lambda outcome: outcome.allocated_percent)
    return MixRow(setting.submission, setting.part, makespan.mean, makespan.spread, allocated.mean)


def claims(rows: Sequence[MixRow]) -> Iterator[PublishedClaim]:
    """Yield what Table 7.7 says, with what was measured."""
    fixed = rows[0].makespan
    for submission in SUBMISSIONS:
        here = [row for row in rows if row.submission == submission]
        for what, none, published, measured in (
            ("time", 100.0, PUBLISHED[submission], [100 * row.makespan / fixed for row in here]),
            (
                "allocation",
                0.0,
                PUBLISHED_ALLOCATED[submission],
                [row.allocated_percent for row in here],
            ),
        ):
            yield PublishedClaim(
                f"{submission} submission, {what} if none, 25 %, 50 %, 75 %, all, or the jobs of one application "
                f"({', '.join(one.name for one in malleable.APPLICATIONS)}) are malleable",
                SOURCE.format("5, Table 7.7"),
                " ".join(f"{value:.0f}" for value in published) + " %",
                " ".join(f"{value:.0f}" for value in measured) + " %",
                all_of(
                    [
                        near(mine, theirs, none=none)
                        for mine, theirs in zip(measured, published, strict=True)
                    ]
                ),
                band_text() + ", each",
                ASSUMPTIONS,
            )
