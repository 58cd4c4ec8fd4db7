# SPDX-License-Identifier: Apache-2.0
"""RQ against the G queue on a year of TSUBAME-like jobs, and with fewer nodes (PDCAT 2014, section IV, Table III)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from statistics import mean, pstdev
from typing import Any

from studies.batch import tsubame
from studies.batch.jobs import BatchJob
from studies.batch.models import NODE_2014, RCUDA_2014
from studies.batch.queues import G_QUEUE, R_QUEUE, QueueDiscipline
from studies.batch.simulation import BatchOutcome, BatchSimulation
from studies.claims import PublishedClaim, at_most, band_text, near, sample

SEEDS = range(1, 11)
NODES = (450, 460, 470, 480)
SOURCE = "Markthub et al., PDCAT 2014, section IV"
SYNTHETIC = "our jobs are synthetic: the log is not public, and the paper does not say how wide its jobs are"


@dataclass(frozen=True)
class RqRow:
    """R queue with *nodes* nodes against the G queue with all nodes: mean seconds saved, and standard deviations."""

    nodes: int
    wait: float
    wait_deviation: float
    execution: float
    lifetime: float
    lifetime_deviation: float

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the benchmark prints it."""
        return asdict(self)


@dataclass(frozen=True)
class RqResult:
    """The runs of one job set: a row for each number of nodes, and two of the runs."""

    rows: Sequence[RqRow]
    g_queue: BatchOutcome
    r_queue: BatchOutcome
    """This run and *g_queue* have all nodes."""


@dataclass(frozen=True)
class RqMeasure:
    """One job set in numbers. Shorter and longer are percents of the G queue's means, idle GPUs a mean over time."""

    rows: Sequence[RqRow]
    wait_shorter: float
    lifetime_shorter: float
    execution_longer: float
    g_idle_waiting: float
    """Idle GPUs while jobs wait, as in *r_idle_waiting*."""
    r_idle_waiting: float
    g_idle: float
    """Idle GPUs over the whole year, as in *r_idle*."""
    r_idle: float


def run(
    jobs: Sequence[BatchJob] | None = None,
    nodes: Sequence[int] = NODES,
    progress: Callable[[str], object] = str,
) -> RqResult:
    """Run the G queue with the largest number of *nodes*, and the R queue with each number.

    The default for *jobs* is a year of synthetic jobs; *progress* is called with a line of text before each run.
    """
    jobs = tsubame.jobs(SEEDS[0]) if jobs is None else jobs
    most = max(nodes)
    progress(f"G queue, {most} nodes")
    g_queue = _run(jobs, most, G_QUEUE)
    outcomes = {}
    for count in nodes:
        progress(f"R queue, {count} nodes")
        outcomes[count] = _run(jobs, count, R_QUEUE)
    rows = [_row(count, g_queue, outcome) for count, outcome in outcomes.items()]
    return RqResult(rows, g_queue, outcomes[most])


def measure(seed: int) -> RqMeasure:
    """Run a year of synthetic jobs, drawn with *seed*, with every number of nodes."""
    return summarise(run(tsubame.jobs(seed)))


def summarise(result: RqResult) -> RqMeasure:
    """Return the runs of one job set in numbers."""
    before, after = result.g_queue.records, result.r_queue.records
    return RqMeasure(
        result.rows,
        _percent_less(before, after, "wait"),
        _percent_less(before, after, "lifetime"),
        _percent_less(after, before, "execution"),
        result.g_queue.idle_while_waiting,
        result.r_queue.idle_while_waiting,
        result.g_queue.idle_gpus,
        result.r_queue.idle_gpus,
    )


def mean_rows(found: Sequence[RqMeasure]) -> Iterator[dict[str, Any]]:
    """Yield, for each number of nodes, the means of the rows of all job sets, and the spread of the lifetime."""
    for rows in zip(*(one.rows for one in found), strict=True):
        names = [name for name in rows[0].to_dict() if name != "nodes"]
        means = {name: mean(getattr(row, name) for row in rows) for name in names}
        spread = sample(rows, lambda row: row.lifetime).spread
        yield {"nodes": rows[0].nodes, **means, "lifetime_spread": spread}


def claims(found: Sequence[RqMeasure]) -> Iterator[PublishedClaim]:
    """Yield the paper's claims about RQ, with what was measured on job sets that differ in their seed."""
    for what, name, published in (
        ("RQ shortens the wait", "wait_shorter", 25.24),
        ("RQ shortens the lifetime", "lifetime_shorter", 5.06),
        ("RQ hardly lengthens the execution", "execution_longer", 0.03),
    ):
        measured = sample(found, attrgetter(name))
        yield PublishedClaim(
            what,
            SOURCE + "-C",
            f"{published} %",
            f"{measured.text(2)} %",
            near(measured.mean, published),
            band_text(),
            SYNTHETIC,
        )
    idle = sample(found, lambda one: 100 * (1 - one.r_idle_waiting / one.g_idle_waiting))
    before, after = (mean(getattr(one, f"{queue}_idle_waiting") for one in found) for queue in "gr")
    yield PublishedClaim(
        "RQ leaves fewer GPUs idle",
        SOURCE + "-C",
        "14.69 % (78.02 to 66.56 GPUs)",
        f"{idle.text()} % while jobs wait ({before:.1f} to {after:.1f} GPUs)",
        near(idle.mean, 14.69),
        band_text(),
        "the paper does not say over which time the mean is taken; over the whole year, mostly without a queue, the "
        f"same work leaves as many GPUs idle ({mean(one.g_idle for one in found):.1f} and "
        f"{mean(one.r_idle for one in found):.1f})",
    )
    rows = list(mean_rows(found))
    most = max(row["nodes"] for row in rows)
    enough = min((row["nodes"] for row in rows if row["lifetime"] >= 0), default=most)
    yield PublishedClaim(
        "RQ needs fewer nodes for the same lifetime",
        SOURCE + "-D, Table III",
        "460 of 480 nodes",
        f"{enough} of {most} nodes or fewer",
        at_most(enough, 460, none=most),
        "≤ 460 nodes",
        SYNTHETIC if enough != 460 else "",
    )


def _run(jobs: Sequence[BatchJob], nodes: int, queue: QueueDiscipline) -> BatchOutcome:
    return BatchSimulation(jobs, nodes, queue, node=NODE_2014, remoting=RCUDA_2014).run()


def _row(nodes: int, before: BatchOutcome, after: BatchOutcome) -> RqRow:
    pairs = list(zip(before.records, after.records, strict=True))
    waits = [old.wait - new.wait for old, new in pairs]
    lifetimes = [old.lifetime - new.lifetime for old, new in pairs]
    return RqRow(
        nodes,
        mean(waits),
        pstdev(waits),
        mean(old.execution - new.execution for old, new in pairs),
        mean(lifetimes),
        pstdev(lifetimes),
    )


def _percent_less(before: Sequence[Any], after: Sequence[Any], attribute: str) -> float:
    """Return by how many percent the mean of *attribute* is less in *after* than in *before*."""
    old = mean(getattr(record, attribute) for record in before)
    new = mean(getattr(record, attribute) for record in after)
    return float(100 * (1 - new / old))
