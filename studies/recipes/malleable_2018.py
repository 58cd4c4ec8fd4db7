"""Rigid against moldable against malleable jobs on 128 cGPUs (thesis, section 7.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from studies.claims import Claim
from studies.hpc import malleable
from studies.hpc.malleable import Kind, Simulation

SEED = 1
GPUS = 128
SIZES = (100, 250, 500, 1000, 2000)
SOURCE = "Iserte, PhD thesis, 2018, section 7.3.{}"
MODEL = "how long the applications run and how far they scale is ours"


@dataclass(frozen=True)
class Row:
    """One workload of one kind of jobs; means in seconds."""

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
        return asdict(self)


def run(sizes: Sequence[int] = SIZES, progress: Callable[[str], object] = str) -> Iterator[Row]:
    """Yield every kind of jobs on every size of workload."""
    for size in sizes:
        coming = malleable.jobs(size, SEED)
        for kind in Kind:
            progress(f"{size} jobs, {kind}")
            outcome = Simulation(coming, GPUS, kind).run()
            records = outcome.records
            yield Row(
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


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Yield what section 7.3 says, and what was seen on the workload of 1,000 jobs, or the largest there is."""
    size = max((row.jobs for row in rows if row.jobs <= 1000), default=rows[0].jobs)
    here = {row.kind: row for row in rows if row.jobs == size}
    fixed, moldable, pure, flexible = (here[str(kind)] for kind in Kind)
    for what, slow, fast, published in (
        ("malleable jobs, submitted rigid, complete sooner", fixed, pure, "over 3 times"),
        ("malleable jobs, submitted moldable, complete sooner", moldable, flexible, "1.5 times"),
    ):
        factor = slow.completion / fast.completion
        yield Claim(what, SOURCE.format(3), published, f"{factor:.1f} times", factor > 1, MODEL)
    yield Claim(
        "moldable jobs run longer once they are many",
        SOURCE.format(3),
        "execution time grows with the queue",
        f"{moldable.execution / fixed.execution:.2f} times that of rigid ones",
        moldable.execution > fixed.execution,
    )
    saved = [100 * (1 - row.energy_kwh / fixed.energy_kwh) for row in (pure, moldable, flexible)]
    yield Claim(
        "malleable, moldable and flexible jobs save energy",
        SOURCE.format(4),
        "up to around 70 %, 50 to 60 %, almost 80 %",
        "{:.0f} %, {:.0f} %, {:.0f} %".format(*saved),
        min(saved) > 0,
        MODEL,
    )
