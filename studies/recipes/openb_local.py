"""Six schedulers that tie tasks to nodes, on three workloads: is it what their authors measured?

Each runs with ten seeds, as the published runs did. Their generator of random numbers is another one, so it is the
means that are compared, and not run with run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import mean

from studies.claims import Claim
from studies.openb import local, trace
from studies.openb.schedulers import SCHEDULERS, Scheduler

SOURCE = "Weng et al., ATC 2023, figure 9 and the results published with it"
SEEDS = range(42, 52)
TOLERANCE = 0.5
"""Percentage points of all GPU thousandths."""


def run(
    workloads: Sequence[str] = trace.WORKLOADS,
    seeds: Sequence[int] = SEEDS,
    progress: Callable[[str], object] = str,
) -> Iterator[Claim]:
    """Yield a claim for each workload and scheduler. *progress* hears of each as it begins."""
    nodes, published = trace.nodes(), trace.published()
    for workload in workloads:
        tasks = trace.tasks(workload)
        for scheduler in SCHEDULERS:
            progress(f"{workload}, {scheduler.name}")
            curves = [local.run(nodes, tasks, scheduler, seed) for seed in seeds]
            theirs = [
                result
                for result in published
                if (result.workload, result.scheduler) == (workload, scheduler.name)
            ]
            yield _claim(workload, scheduler, curves, theirs)


def _claim(
    workload: str,
    scheduler: type[Scheduler],
    curves: Sequence[local.Curve],
    theirs: Sequence[trace.Published],
) -> Claim:
    published = mean(run.at_100 for run in theirs), mean(run.at_130 for run in theirs)
    measured = mean(curve.at(100) for curve in curves), mean(curve.at(130) for curve in curves)
    furthest = max(abs(ours - others) for ours, others in zip(measured, published, strict=True))
    return Claim(
        what=f"{workload}: {scheduler.name} allocates so much at arrivals of 100 % and 130 %",
        source=SOURCE,
        published="{:.2f} %, {:.2f} %".format(*published),
        measured="{:.2f} %, {:.2f} %".format(*measured),
        holds=furthest <= TOLERANCE,
        why=f"{furthest:.2f} points apart: other random orders" if furthest >= 0.1 else "",
    )
