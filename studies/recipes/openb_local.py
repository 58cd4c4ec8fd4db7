# SPDX-License-Identifier: Apache-2.0
"""Reproduction: the six published schedulers that tie tasks to nodes, on four workloads (ATC 2023, figure 9).

Each runs with ten seeds, as the published runs did. The published simulator has another random number generator, so
means are compared, and not single runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import mean

from studies.claims import PublishedClaim
from studies.openb import local, trace
from studies.openb.schedulers import SCHEDULERS, Scheduler

SOURCE = "Weng et al., ATC 2023, figure 9 and the results published with it"
SEEDS = range(42, 52)
TOLERANCE = 0.5
"""Percentage points of all GPU thousandths by which a mean may differ from the published one."""


def run(
    workloads: Sequence[str] = trace.WORKLOADS,
    seeds: Sequence[int] = SEEDS,
    progress: Callable[[str], object] = str,
) -> Iterator[PublishedClaim]:
    """Yield a claim for each workload and scheduler; *progress* is called with a line of text before each."""
    nodes, published = trace.nodes(), trace.published()
    for workload in workloads:
        tasks = trace.tasks(workload)
        for scheduler in SCHEDULERS:
            progress(f"{workload}, {scheduler.name}")
            curves = [local.run(nodes, tasks, scheduler, seed) for seed in seeds]
            published_runs = [
                result
                for result in published
                if (result.workload, result.scheduler) == (workload, scheduler.name)
            ]
            yield _claim(workload, scheduler, curves, published_runs)


def _claim(
    workload: str,
    scheduler: type[Scheduler],
    curves: Sequence[local.AllocationCurve],
    published_runs: Sequence[trace.PublishedRun],
) -> PublishedClaim:
    published = (
        mean(run.at_100 for run in published_runs),
        mean(run.at_130 for run in published_runs),
    )
    measured = (
        mean(curve.allocated_at(100) for curve in curves),
        mean(curve.allocated_at(130) for curve in curves),
    )
    difference = max(abs(mine - theirs) for mine, theirs in zip(measured, published, strict=True))
    return PublishedClaim(
        what=f"{workload}: {scheduler.name} allocates so much at arrivals of 100 % and 130 %",
        source=SOURCE,
        published="{:.2f} %, {:.2f} %".format(*published),
        measured="{:.2f} %, {:.2f} %".format(*measured),
        holds=difference <= TOLERANCE,
        why=f"{difference:.2f} points apart: other random orders" if difference >= 0.1 else "",
    )
