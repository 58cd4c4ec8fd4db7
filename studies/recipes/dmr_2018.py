# SPDX-License-Identifier: Apache-2.0
"""Rigid and malleable jobs under the DMR API (thesis, chapter 6): Tables 6.2 and 6.5.

Chapter 7 has another algorithm, other limits and other nodes: `malleable_2018`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from studies.claims import PublishedClaim, Verdict, all_of, band_text, near, sample
from studies.hpc import dmr
from studies.hpc.malleable import JobKind, MalleableSimulation

SEEDS = range(1, 11)
SOURCE = "Iserte, PhD thesis, 2018, {}"
SIZES = (50, 100, 200, 400)
"""Jobs of the workloads of Table 6.5; Table 6.2 is of the largest."""
SYNTHETIC, APPLICATIONS = "synthetic", "three applications"
ASSUMPTIONS = (
    "the workloads were drawn from a model with parameters that the thesis does not give, and jobs start in order "
    "here, without backfill"
)
SCALING = (
    "run times and scaling of the applications were chosen to fit the execution times of this table; the rest follows. "
    "Jobs start in order here, without backfill"
)


class Mode(enum.StrEnum):
    """How jobs resize."""

    RIGID = "rigid"
    SYNCHRONOUS = "malleable"
    ASYNCHRONOUS = "malleable, asynchronous"


PUBLISHED_GAINS = {
    Mode.SYNCHRONOUS: (93.909, 27.980, -58.482, 12.786),
    Mode.ASYNCHRONOUS: (86.687, 30.575, -97.294, 7.799),
}
"""Table 6.2: percent of the nodes that are used, and percent less wait, execution and completion than rigid jobs."""
PUBLISHED_RIGID = 83.607
"""The same: percent of the nodes that rigid jobs use."""
PUBLISHED = {
    50: ((98.71, 4115.02, 620.26, 4735.28), (68.67, 1359.92, 900.30, 2260.22)),
    100: ((97.39, 9750.34, 586.64, 10336.98), (71.91, 2990.60, 858.16, 3848.76)),
    200: ((98.38, 17466.20, 520.58, 17986.78), (73.54, 6856.80, 825.88, 7676.67)),
    400: ((98.38, 31788.39, 532.14, 32320.53), (73.54, 13861.03, 843.19, 14704.22)),
}
"""Table 6.5, by the number of jobs, of rigid and of malleable ones: percent of the nodes that are used, and the mean
seconds of wait, execution and completion."""


@dataclass(frozen=True)
class DmrRow:
    """*jobs* jobs of one workload, in the mean of several job sets. Times are means in seconds."""

    workload: str
    jobs: int
    mode: str
    allocated_percent: float
    wait: float
    execution: float
    completion: float
    completion_spread: float
    """The standard deviation of the job sets."""

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the benchmark prints it."""
        return asdict(self)


@dataclass(frozen=True)
class DmrSetting:
    """One row to measure: the fields are those of the row, and the job sets to run."""

    workload: str
    jobs: int
    mode: Mode
    seeds: tuple[int, ...]


def settings(seeds: Sequence[int] = SEEDS) -> list[DmrSetting]:
    """Return the settings of Table 6.2, then those of Table 6.5, which has no asynchronous jobs."""
    return [
        *(DmrSetting(SYNTHETIC, size, mode, tuple(seeds)) for size in SIZES for mode in Mode),
        *(
            DmrSetting(APPLICATIONS, size, mode, tuple(seeds))
            for size in SIZES
            for mode in (Mode.RIGID, Mode.SYNCHRONOUS)
        ),
    ]


def measure(setting: DmrSetting) -> DmrRow:
    """Run one setting with every seed; return its row."""
    is_synthetic = setting.workload == SYNTHETIC
    draw = dmr.synthetic_jobs if is_synthetic else dmr.jobs
    outcomes = [
        MalleableSimulation(
            draw(setting.jobs, seed),
            dmr.SYNTHETIC_NODES if is_synthetic else dmr.NODES,
            JobKind.FIXED if setting.mode is Mode.RIGID else JobKind.MALLEABLE,
            rule=dmr.ALGORITHM_3 if is_synthetic else dmr.ALGORITHM_2,
            asynchronous=setting.mode is Mode.ASYNCHRONOUS,
        ).run()
        for seed in setting.seeds
    ]
    records = [record for outcome in outcomes for record in outcome.records]
    completion = sample(
        outcomes,
        lambda outcome: mean(record.end - record.arrival for record in outcome.records),
    )
    return DmrRow(
        setting.workload,
        setting.jobs,
        str(setting.mode),
        mean(outcome.allocated_percent for outcome in outcomes),
        mean(record.start - record.arrival for record in records),
        mean(record.end - record.start for record in records),
        completion.mean,
        completion.spread,
    )


def run(seeds: Sequence[int] = SEEDS, progress: Callable[[str], object] = str) -> Iterator[DmrRow]:
    """Run all settings; yield a row for each."""
    for setting in settings(seeds):
        progress(f"{setting.workload}, {setting.jobs} jobs, {setting.mode}")
        yield measure(setting)


def claims(rows: Sequence[DmrRow]) -> Iterator[PublishedClaim]:
    """Yield what Tables 6.2 and 6.5 say, with what was measured."""
    rigid, *malleable = (_row(rows, SYNTHETIC, SIZES[-1], mode) for mode in Mode)
    gains = {}
    for (mode, published), row in zip(PUBLISHED_GAINS.items(), malleable, strict=True):
        measured = (row.allocated_percent, *_less(_times(rigid), _times(row)))
        gains[mode] = measured[-1]
        yield PublishedClaim(
            f"{row.jobs} synthetic jobs, {mode}: nodes used, and less wait, execution and completion than rigid jobs",
            SOURCE.format("Table 6.2"),
            _gains_text(published, PUBLISHED_RIGID),
            _gains_text(measured, rigid.allocated_percent),
            all_of([near(mine, theirs) for mine, theirs in zip(measured, published, strict=True)]),
            band_text() + ", each",
            ASSUMPTIONS,
        )
    later, sooner = gains[Mode.ASYNCHRONOUS], gains[Mode.SYNCHRONOUS]
    yield PublishedClaim(
        "synthetic jobs: to decide one step ahead is not worth it",
        SOURCE.format("section 6.5.2.2"),
        "12.8 % less completion time if the decision is carried out at once, 7.8 % one step later",
        f"{sooner:.1f} % at once, {later:.1f} % one step later",
        Verdict.REPRODUCED if later < sooner else Verdict.REFUTED,
        "less gained one step later",
    )
    for size, published_rows in PUBLISHED.items():
        pair = [_row(rows, APPLICATIONS, size, mode) for mode in (Mode.RIGID, Mode.SYNCHRONOUS)]
        here = [(row.allocated_percent, *_times(row)) for row in pair]
        ours, theirs = _less(*here), _less(*published_rows)
        yield PublishedClaim(
            f"{size} jobs of three applications: malleable ones allocate less, wait less, execute longer and complete "
            "sooner than rigid ones",
            SOURCE.format("Table 6.5"),
            _cells_text(theirs, published_rows[0]),
            _cells_text(ours, here[0]),
            all_of([near(mine, published) for mine, published in zip(ours, theirs, strict=True)]),
            band_text() + ", each change",
            SCALING,
        )


def _row(rows: Sequence[DmrRow], workload: str, jobs: int, mode: Mode) -> DmrRow:
    return next(row for row in rows if (row.workload, row.jobs, row.mode) == (workload, jobs, mode))


def _times(row: DmrRow) -> tuple[float, float, float]:
    return row.wait, row.execution, row.completion


def _gains_text(gains: Sequence[float], rigid: float) -> str:
    used, wait, execution, completion = gains
    return f"{used:.1f} % of the nodes (rigid {rigid:.1f} %); {wait:.1f} %, {execution:.1f} %, {completion:.1f} % less"


def _cells_text(less: Sequence[float], rigid: Sequence[float]) -> str:
    cells = ", ".join(f"{value:.0f} %" for value in less)
    used, wait, execution, completion = rigid
    return f"{cells} less than {used:.1f} % of the nodes, {wait:.0f} s, {execution:.0f} s, {completion:.0f} s"


def _less(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """Return by how many percent each of *after* is less than that of *before*."""
    return [100 * (1 - new / old) for old, new in zip(before, after, strict=True)]
