# SPDX-License-Identifier: Apache-2.0
"""Reproduction: the six published schedulers that tie tasks to nodes, on four workloads (ATC 2023, figure 9).

Each runs with ten seeds, as the published runs did. The published simulator has another random number generator, so
means are compared, and not single runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from studies.claims import PublishedClaim, all_of, within
from studies.openb import local, trace
from studies.openb.schedulers import SCHEDULERS, Scheduler
from studies.openb.trace import OpenbNode, Task

SOURCE = "Weng et al., ATC 2023, figures 9 and 13, and the results published with it"
SEEDS = range(42, 52)
TOLERANCE = 0.5
"""Percentage points of all GPU thousandths by which a mean may differ from the published one."""


@dataclass(frozen=True)
class SchedulerRow:
    """One scheduler on one workload: percent of all GPU thousandths that are allocated in the end, for each seed."""

    scheduler: str
    runs: Sequence[float]
    at_100: Sequence[float]
    """The same when the arrivals had asked for 100 % of all thousandths; empty if they never do."""

    @property
    def mean(self) -> float:
        """The mean of the runs."""
        return mean(self.runs)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as `python -m studies openb --json` prints it."""
        return {"scheduler": self.scheduler, "mean": self.mean, "runs": list(self.runs)}


def rows(
    nodes: Sequence[OpenbNode],
    tasks: Sequence[Task],
    schedulers: Iterable[type[Scheduler]] = SCHEDULERS,
    seeds: Sequence[int] = SEEDS,
    load: float = local.LOAD,
    progress: Callable[[str], object] = str,
) -> Iterator[SchedulerRow]:
    """Yield a row for each of *schedulers*, when arrivals ask for *load* times the capacity.

    *progress* is called with a line of text before each run.
    """
    percent = round(100 * load)
    for scheduler in schedulers:
        curves = []
        for seed in seeds:
            progress(f"{scheduler.name}, seed {seed}")
            curves.append(local.run(nodes, tasks, scheduler, seed, load=load))
        at_100 = [curve.allocated_at(100) for curve in curves] if percent >= 100 else []
        yield SchedulerRow(
            scheduler.name, [curve.allocated_at(percent) for curve in curves], at_100
        )


@dataclass(frozen=True)
class LocalSetting:
    """One scheduler on one workload, and the random orders to run."""

    workload: str
    scheduler: str
    seeds: tuple[int, ...]


def settings(
    workloads: Sequence[str] = trace.WORKLOADS, seeds: Sequence[int] = SEEDS
) -> list[LocalSetting]:
    """Return every scheduler on every workload."""
    return [
        LocalSetting(workload, scheduler.name, tuple(seeds))
        for workload in workloads
        for scheduler in SCHEDULERS
    ]


def measure(setting: LocalSetting) -> SchedulerRow:
    """Run one setting with every seed; return its row."""
    chosen = [scheduler for scheduler in SCHEDULERS if scheduler.name == setting.scheduler]
    (row,) = rows(trace.nodes(), trace.tasks(setting.workload), chosen, setting.seeds)
    return row


def claims(found: Sequence[tuple[LocalSetting, SchedulerRow]]) -> Iterator[PublishedClaim]:
    """Yield the claim that each of the rows *found* tests."""
    published = trace.published()
    for setting, row in found:
        published_runs = [
            result
            for result in published
            if (result.workload, result.scheduler) == (setting.workload, row.scheduler)
        ]
        yield _claim(setting.workload, row, published_runs)


def _claim(
    workload: str, row: SchedulerRow, published_runs: Sequence[trace.PublishedRun]
) -> PublishedClaim:
    published = (
        mean(run.at_100 for run in published_runs),
        mean(run.at_130 for run in published_runs),
    )
    measured = (mean(row.at_100), row.mean)
    pairs = list(zip(measured, published, strict=True))
    difference = max(abs(mine - theirs) for mine, theirs in pairs)
    return PublishedClaim(
        what=f"{workload}: {row.scheduler} allocates so much at arrivals of 100 % and 130 %",
        source=SOURCE,
        published="{:.2f} %, {:.2f} %".format(*published),
        measured="{:.2f} %, {:.2f} %".format(*measured),
        verdict=all_of([within(mine, theirs, TOLERANCE) for mine, theirs in pairs]),
        band=f"± {TOLERANCE:g} points",
        why=f"{difference:.2f} points apart: other random orders" if difference >= 0.1 else "",
    )
