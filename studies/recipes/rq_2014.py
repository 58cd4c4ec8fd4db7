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
from studies.batch.queues import G_QUEUE, R_QUEUE, R_QUEUE_PRINTED, QueueDiscipline
from studies.batch.simulation import BatchOutcome, BatchSimulation
from studies.claims import PublishedClaim, all_of, at_most, band_text, near, sample

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
    execution_deviation: float
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
    """This run, *g_queue* and *printed* have all nodes."""
    printed: BatchOutcome
    """The R queue as figure 6 prints it."""


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
    wait_longer: float
    """Percent of the jobs that wait longer."""
    wait_longer_minutes: float
    """How much longer these wait, on average."""
    printed_wait_shorter: float
    """As *wait_shorter*, with the R queue as printed: a process that lacks one GPU uses all remotely."""
    printed_lifetime_shorter: float
    printed_execution_longer: float


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
    progress(f"R queue as printed, {most} nodes")
    return RqResult(rows, g_queue, outcomes[most], _run(jobs, most, R_QUEUE_PRINTED))


def measure(seed: int) -> RqMeasure:
    """Run a year of synthetic jobs, drawn with *seed*, with every number of nodes."""
    return summarise(run(tsubame.jobs(seed)))


def summarise(result: RqResult) -> RqMeasure:
    """Return the runs of one job set in numbers."""
    before, after, printed = (
        outcome.records for outcome in (result.g_queue, result.r_queue, result.printed)
    )
    longer = [
        new.wait - old.wait for old, new in zip(before, after, strict=True) if new.wait > old.wait
    ]
    return RqMeasure(
        result.rows,
        _percent_less(before, after, "wait"),
        _percent_less(before, after, "lifetime"),
        _percent_less(after, before, "execution"),
        result.g_queue.idle_while_waiting,
        result.r_queue.idle_while_waiting,
        result.g_queue.idle_gpus,
        result.r_queue.idle_gpus,
        100 * len(longer) / len(before),
        mean(longer) / 60 if longer else 0.0,
        _percent_less(before, printed, "wait"),
        _percent_less(before, printed, "lifetime"),
        _percent_less(printed, before, "execution"),
    )


def mean_rows(found: Sequence[RqMeasure]) -> Iterator[dict[str, Any]]:
    """Yield, for each number of nodes, the means of the rows of all job sets, and the spread of the lifetime."""
    for rows in zip(*(one.rows for one in found), strict=True):
        names = [name for name in rows[0].to_dict() if name != "nodes"]
        means = {name: mean(getattr(row, name) for row in rows) for name in names}
        spread = sample(rows, lambda row: row.lifetime).spread
        yield {"nodes": rows[0].nodes, **means, "lifetime_spread": spread}


TABLE_III = {
    450: (-901.49, 4236.04, -5.81, -907.29),
    460: (-32.87, 3654.48, -4.55, -37.42),
    470: (449.14, 3277.54, -4.31, 444.83),
    480: (963.60, 6678.48, -3.96, 959.65),
}
"""Nodes -> seconds less wait, the standard deviation of that, seconds less execution and less lifetime."""


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
    yield from _table_claims(found)
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


def _table_claims(found: Sequence[RqMeasure]) -> Iterator[PublishedClaim]:
    """Yield the claims of Table III, of the jobs that wait longer, and of figure 6 as printed."""
    for row in mean_rows(found):
        if row["nodes"] not in TABLE_III:
            continue
        wait, deviation, execution, lifetime = TABLE_III[row["nodes"]]
        pairs = [
            (row["wait"], wait),
            (row["wait_deviation"], deviation),
            (row["execution"], execution),
            (row["lifetime"], lifetime),
        ]
        yield PublishedClaim(
            f"{row['nodes']} nodes: seconds less wait, its deviation, seconds less execution and lifetime",
            SOURCE + "-D, Table III",
            ", ".join(f"{theirs:.1f}" for _, theirs in pairs),
            ", ".join(f"{mine:.1f}" for mine, _ in pairs),
            all_of([near(mine, theirs) for mine, theirs in pairs]),
            band_text() + ", each",
            SYNTHETIC,
        )
    longer = sample(found, attrgetter("wait_longer"))
    minutes = sample(found, attrgetter("wait_longer_minutes"))
    yield PublishedClaim(
        "few jobs wait longer with RQ, and not much",
        SOURCE + "-C",
        "0.81 % of the jobs, by 3.51 minutes on average",
        f"{longer.text(2)} %, by {minutes.text()} minutes",
        all_of([near(longer.mean, 0.81), near(minutes.mean, 3.51)]),
        band_text() + ", each",
        SYNTHETIC,
    )
    printed = sample(found, attrgetter("printed_lifetime_shorter"))
    ours = sample(found, attrgetter("lifetime_shorter"))
    longer_execution = sample(found, attrgetter("printed_execution_longer"))
    yield PublishedClaim(
        "RQ shortens the lifetime, if a process that lacks a GPU uses all its GPUs through rCUDA",
        SOURCE.replace("IV", "III") + ", figure 6 as printed",
        "5.06 %",
        f"{printed.text(2)} % with an execution {longer_execution.text(2)} % longer; {ours.text(2)} % as we read it: "
        "local GPUs first",
        near(printed.mean, 5.06),
        band_text(),
        SYNTHETIC,
    )


def _run(jobs: Sequence[BatchJob], nodes: int, queue: QueueDiscipline) -> BatchOutcome:
    return BatchSimulation(jobs, nodes, queue, node=NODE_2014, remoting=RCUDA_2014).run()


def _row(nodes: int, before: BatchOutcome, after: BatchOutcome) -> RqRow:
    pairs = list(zip(before.records, after.records, strict=True))
    waits = [old.wait - new.wait for old, new in pairs]
    executions = [old.execution - new.execution for old, new in pairs]
    lifetimes = [old.lifetime - new.lifetime for old, new in pairs]
    return RqRow(
        nodes,
        mean(waits),
        pstdev(waits),
        mean(executions),
        pstdev(executions),
        mean(lifetimes),
        pstdev(lifetimes),
    )


def _percent_less(before: Sequence[Any], after: Sequence[Any], attribute: str) -> float:
    """Return by how many percent the mean of *attribute* is less in *after* than in *before*."""
    old = mean(getattr(record, attribute) for record in before)
    new = mean(getattr(record, attribute) for record in after)
    return float(100 * (1 - new / old))
