# SPDX-License-Identifier: Apache-2.0
"""RQ against the G queue on a year of TSUBAME-like jobs, and with fewer nodes (PDCAT 2014, section IV, Table III)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, pstdev
from typing import Any

from studies.batch import tsubame
from studies.batch.jobs import BatchJob
from studies.batch.models import NODE_2014, RCUDA_2014
from studies.batch.queues import G_QUEUE, R_QUEUE, QueueDiscipline
from studies.batch.simulation import BatchOutcome, BatchSimulation
from studies.claims import PublishedClaim

SEED = 1
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
    """The result of the experiment: a row for each number of nodes, and two of the runs."""

    rows: Sequence[RqRow]
    g_queue: BatchOutcome
    r_queue: BatchOutcome
    """This run and *g_queue* have all nodes."""


def run(
    jobs: Sequence[BatchJob] | None = None,
    nodes: Sequence[int] = NODES,
    progress: Callable[[str], object] = str,
) -> RqResult:
    """Run the G queue with the largest number of *nodes*, and the R queue with each number.

    The default for *jobs* is a year of synthetic jobs; *progress* is called with a line of text before each run.
    """
    jobs = tsubame.jobs(SEED) if jobs is None else jobs
    most = max(nodes)
    progress(f"G queue, {most} nodes")
    g_queue = _run(jobs, most, G_QUEUE)
    outcomes = {}
    for count in nodes:
        progress(f"R queue, {count} nodes")
        outcomes[count] = _run(jobs, count, R_QUEUE)
    rows = [_row(count, g_queue, outcome) for count, outcome in outcomes.items()]
    return RqResult(rows, g_queue, outcomes[most])


def claims(result: RqResult) -> Iterator[PublishedClaim]:
    """Yield the paper's claims about RQ, with what was measured."""
    before, after = result.g_queue.records, result.r_queue.records
    wait = _percent_less(before, after, "wait")
    lifetime = _percent_less(before, after, "lifetime")
    longer = _percent_less(after, before, "execution")
    idle = 100 * (1 - result.r_queue.idle_while_waiting / result.g_queue.idle_while_waiting)
    yield PublishedClaim(
        "RQ shortens the wait", SOURCE + "-C", "25.24 %", f"{wait:.2f} %", wait > 0, SYNTHETIC
    )
    yield PublishedClaim(
        "RQ shortens the lifetime",
        SOURCE + "-C",
        "5.06 %",
        f"{lifetime:.2f} %",
        lifetime > 0,
        SYNTHETIC,
    )
    yield PublishedClaim(
        "RQ hardly lengthens the execution", SOURCE + "-C", "0.03 %", f"{longer:.2f} %", longer < 1
    )
    yield PublishedClaim(
        "RQ leaves fewer GPUs idle",
        SOURCE + "-C",
        "14.69 % (78.02 to 66.56 GPUs)",
        f"{idle:.1f} % while jobs wait ({result.g_queue.idle_while_waiting:.1f} to "
        f"{result.r_queue.idle_while_waiting:.1f} GPUs)",
        idle > 0,
        "the paper does not say over which time the mean is taken; over the whole year, mostly without a queue, the "
        f"same work leaves as many GPUs idle ({result.g_queue.idle_gpus:.1f} and {result.r_queue.idle_gpus:.1f})",
    )
    enough = min(row.nodes for row in result.rows if row.lifetime >= 0)
    yield PublishedClaim(
        "RQ needs fewer nodes for the same lifetime",
        SOURCE + "-D, Table III",
        "460 of 480 nodes",
        f"{enough} of {max(row.nodes for row in result.rows)} nodes or fewer",
        enough <= 460,
        SYNTHETIC if enough < 460 else "",
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
