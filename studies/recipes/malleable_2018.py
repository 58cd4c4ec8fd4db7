# SPDX-License-Identifier: Apache-2.0
"""Rigid, moldable, malleable and flexible jobs on 128 cGPUs (thesis, section 7.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from studies.claims import PublishedClaim
from studies.hpc import malleable
from studies.hpc.malleable import JobKind, MalleableSimulation

SEED = 1
GPUS = 128
SIZES = (100, 250, 500, 1000, 2000)
SOURCE = "Iserte, PhD thesis, 2018, section 7.3.{}"
ASSUMPTIONS = "how long the applications run and how far they scale are assumptions of ours"


@dataclass(frozen=True)
class MalleableRow:
    """One run of *jobs* jobs of one kind. Times are means in seconds; *changes* is how often jobs were resized."""

    jobs: int
    kind: str
    makespan: float
    wait: float
    execution: float
    completion: float
    allocated_percent: float
    energy_kwh: float
    changes: int

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the benchmark prints it."""
        return asdict(self)


def run(
    sizes: Sequence[int] = SIZES, progress: Callable[[str], object] = str
) -> Iterator[MalleableRow]:
    """Run workloads of every size with every kind of jobs; yield a row for each run."""
    for size in sizes:
        jobs = malleable.jobs(size, SEED)
        for kind in JobKind:
            progress(f"{size} jobs, {kind}")
            outcome = MalleableSimulation(jobs, GPUS, kind).run()
            records = outcome.records
            yield MalleableRow(
                size,
                str(kind),
                outcome.makespan,
                mean(record.start - record.arrival for record in records),
                mean(record.end - record.start for record in records),
                mean(record.end - record.arrival for record in records),
                outcome.allocated_percent,
                outcome.energy_kwh,
                sum(record.changes for record in records),
            )


def claims(rows: Sequence[MalleableRow]) -> Iterator[PublishedClaim]:
    """Yield the claims of section 7.3, with what was measured on the largest workload of at most 1,000 jobs."""
    size = max((row.jobs for row in rows if row.jobs <= 1000), default=rows[0].jobs)
    here = {row.kind: row for row in rows if row.jobs == size}
    fixed, moldable, malleable_row, flexible = (here[str(kind)] for kind in JobKind)
    for what, slow, fast, published in (
        ("malleable jobs, submitted rigid, complete sooner", fixed, malleable_row, "over 3 times"),
        ("malleable jobs, submitted moldable, complete sooner", moldable, flexible, "1.5 times"),
    ):
        factor = slow.completion / fast.completion
        yield PublishedClaim(
            what, SOURCE.format(3), published, f"{factor:.1f} times", factor > 1, ASSUMPTIONS
        )
    yield PublishedClaim(
        "moldable jobs run longer once they are many",
        SOURCE.format(3),
        "execution time grows with the queue",
        f"{moldable.execution / fixed.execution:.2f} times that of rigid ones",
        moldable.execution > fixed.execution,
    )
    saved = [
        100 * (1 - row.energy_kwh / fixed.energy_kwh) for row in (malleable_row, moldable, flexible)
    ]
    yield PublishedClaim(
        "malleable, moldable and flexible jobs save energy",
        SOURCE.format(4),
        "up to around 70 %, 50 to 60 %, almost 80 %",
        "{:.0f} %, {:.0f} %, {:.0f} %".format(*saved),
        min(saved) > 0,
        ASSUMPTIONS,
    )
