"""RQ against the G queue on a year of TSUBAME-like jobs, and with fewer nodes (PDCAT 2014, section IV, Table III)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, pstdev
from typing import Any

from studies.batch import tsubame
from studies.batch.jobs import Job
from studies.batch.models import NODE_2014, RCUDA_2014
from studies.batch.queues import G_QUEUE, R_QUEUE, Queue
from studies.batch.simulation import Outcome, Simulation
from studies.claims import Claim

SEED = 1
NODES = (450, 460, 470, 480)
SOURCE = "Markthub et al., PDCAT 2014, section IV"
SYNTHETIC = "our jobs are synthetic: the log is not public, and how wide its jobs are is not told"


@dataclass(frozen=True)
class Row:
    """R queue with *nodes* nodes, against the G queue with 480: seconds less on average, and their deviation."""

    nodes: int
    wait: float
    wait_deviation: float
    execution: float
    lifetime: float
    lifetime_deviation: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Result:
    rows: Sequence[Row]
    g_queue: Outcome
    r_queue: Outcome
    """Both with all nodes."""


def run(
    jobs: Sequence[Job] | None = None,
    nodes: Sequence[int] = NODES,
    progress: Callable[[str], object] = str,
) -> Result:
    """Run the G queue with the most *nodes*, and the R queue with each number of them."""
    jobs = tsubame.jobs(SEED) if jobs is None else jobs
    most = max(nodes)
    progress(f"G queue, {most} nodes")
    g_queue = _run(jobs, most, G_QUEUE)
    outcomes = {}
    for count in nodes:
        progress(f"R queue, {count} nodes")
        outcomes[count] = _run(jobs, count, R_QUEUE)
    rows = [_row(count, g_queue, outcome) for count, outcome in outcomes.items()]
    return Result(rows, g_queue, outcomes[most])


def claims(result: Result) -> Iterator[Claim]:
    """Yield what the paper says of RQ, and what was seen."""
    before, after = result.g_queue.records, result.r_queue.records
    wait = _less(before, after, "wait")
    lifetime = _less(before, after, "lifetime")
    longer = _less(after, before, "execution")
    idle = 100 * (1 - result.r_queue.idle_while_waiting / result.g_queue.idle_while_waiting)
    yield Claim(
        "RQ shortens the wait", SOURCE + "-C", "25.24 %", f"{wait:.2f} %", wait > 0, SYNTHETIC
    )
    yield Claim(
        "RQ shortens the lifetime",
        SOURCE + "-C",
        "5.06 %",
        f"{lifetime:.2f} %",
        lifetime > 0,
        SYNTHETIC,
    )
    yield Claim(
        "RQ hardly lengthens the execution", SOURCE + "-C", "0.03 %", f"{longer:.2f} %", longer < 1
    )
    yield Claim(
        "RQ leaves fewer GPUs idle",
        SOURCE + "-C",
        "14.69 % (78.02 to 66.56 GPUs)",
        f"{idle:.1f} % while somebody waits ({result.g_queue.idle_while_waiting:.1f} to "
        f"{result.r_queue.idle_while_waiting:.1f} GPUs)",
        idle > 0,
        "the paper does not say over which time it took the mean; over all of ours, most of it without a queue, the "
        f"same work leaves as many GPUs idle ({result.g_queue.idle_gpus:.1f} and {result.r_queue.idle_gpus:.1f})",
    )
    enough = min(row.nodes for row in result.rows if row.lifetime >= 0)
    yield Claim(
        "RQ needs fewer nodes for the same lifetime",
        SOURCE + "-D, Table III",
        "460 of 480 nodes",
        f"{enough} of {max(row.nodes for row in result.rows)} nodes or fewer",
        enough <= 460,
        SYNTHETIC if enough < 460 else "",
    )


def _run(jobs: Sequence[Job], nodes: int, queue: Queue) -> Outcome:
    return Simulation(jobs, nodes, queue, node=NODE_2014, remoting=RCUDA_2014).run()


def _row(nodes: int, before: Outcome, after: Outcome) -> Row:
    pairs = list(zip(before.records, after.records, strict=True))
    waits = [old.wait - new.wait for old, new in pairs]
    lifetimes = [old.lifetime - new.lifetime for old, new in pairs]
    return Row(
        nodes,
        mean(waits),
        pstdev(waits),
        mean(old.execution - new.execution for old, new in pairs),
        mean(lifetimes),
        pstdev(lifetimes),
    )


def _less(before: Sequence[Any], after: Sequence[Any], what: str) -> float:
    """By how many percent the mean of *what* went down."""
    old = mean(getattr(record, what) for record in before)
    return 100 * (1 - mean(getattr(record, what) for record in after) / old)
