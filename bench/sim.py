"""The simulator's recipes: what the papers claim, and what is measured here.

Every recipe runs, on as many processes as there are cores; the answer does not depend on how many. The claims table and
charts are written to build/sim/report.html.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bench.report import machine
from gsaas.gpgpums import policies
from gsaas.sim.report import svg
from studies import report as claims_page
from studies.batch import tsubame
from studies.batch.jobs import Job, JobModel, magnitude
from studies.batch.models import NODE_2014, RCUDA_2014
from studies.batch.queues import G_QUEUE, MRQ, R_QUEUE, RQ, Queue
from studies.batch.simulation import Simulation
from studies.claims import Claim
from studies.openb import cloudified, local, trace
from studies.openb.schedulers import SCHEDULERS
from studies.recipes import (
    malleable_2018,
    mrq_2016,
    openb_cloudified,
    openb_local,
    rq_2014,
    slurm_2018,
)

MINUTE = 60.0
GROWTH_NODES = (120, 480)
REPORT = Path("build/sim/report.html")


def run() -> dict[str, Any]:
    """Run all; rows are points and claims, reaches the bounds of the simulator's own making."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        ours = _each(pool, _openb_local, trace.WORKLOADS)
        anywhere = _each(pool, _openb_cloudified, trace.WORKLOADS)
        points = _each(pool, mrq_2016.measure, mrq_2016.settings(), alone=True)
    timed = _timed()
    rq = rq_2014.run(progress=_say)
    slurm = list(slurm_2018.run(_say))
    malleable = list(malleable_2018.run(progress=_say))
    claims = [
        *ours,
        *openb_cloudified.claims(anywhere),
        *rq_2014.claims(rq),
        *mrq_2016.claims(points),
        *slurm_2018.claims(slurm),
        *malleable_2018.claims(malleable),
    ]
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(claims_page.html(claims, _charts(anywhere, points, rq, slurm, malleable)))
    _say(f"look at {REPORT}")
    rows = [
        *(row.to_dict() for row in anywhere),
        *(point.to_dict() for point in points),
        *(row.to_dict() for row in rq.rows),
        *(row.to_dict() for row in slurm),
        *(row.to_dict() for row in malleable),
        *timed,
        *(_row(claim) for claim in claims),
    ]
    return {
        "bench": "sim",
        "machine": machine(),
        "rows": rows,
        "reach": [*_reaches(ours, anywhere, points), *_speed(timed)],
    }


def _openb_local(workload: str) -> list[Claim]:
    return list(openb_local.run([workload], progress=_say))


def _openb_cloudified(workload: str) -> list[openb_cloudified.Row]:
    return list(openb_cloudified.rows(workload, progress=_say))


def _each(
    pool: ProcessPoolExecutor, work: Callable[[Any], Any], what: Sequence[Any], alone: bool = False
) -> list[Any]:
    """Do *work* on each of *what*, in order; its lists are joined unless each answer stands *alone*."""
    found: list[Any] = []
    for done, answer in enumerate(pool.map(work, what), 1):
        found += [answer] if alone else answer
        _say(f"{work.__name__.strip('_')}: {done} of {len(what)}")
    return found


def _timed() -> list[dict[str, Any]]:
    """How long the two largest runs take on one core, and how the time grows with the nodes."""
    _say("timing, one run after the other")
    nodes, tasks = trace.nodes(), trace.tasks("default")
    rows = [
        _clocked(
            f"openb, {scheduler.name}",
            len(nodes),
            lambda s=scheduler: local.run(nodes, tasks, s, 42),
        )
        for scheduler in SCHEDULERS
    ]
    policy = policies.load(policies.names()[0])
    rows.append(
        _clocked("openb, cloudified", len(nodes), lambda: cloudified.run(nodes, tasks, policy, 42))
    )
    for count in GROWTH_NODES:
        jobs = tsubame.jobs(1, tsubame.JOBS * count // tsubame.NODES, count)
        simulation = Simulation(jobs, count, R_QUEUE, node=NODE_2014, remoting=RCUDA_2014)
        rows.append(_clocked(f"{len(jobs)} jobs, RQ", count, simulation.run))
    return rows


def _clocked(what: str, nodes: int, work: Callable[[], Any]) -> dict[str, Any]:
    begin = time.process_time()
    outcome = work()
    seconds = time.process_time() - begin
    curve = getattr(outcome, "curve", outcome)
    events = len(curve.asked) if hasattr(curve, "asked") else curve.events
    return {
        "run": what,
        "nodes": nodes,
        "events": events,
        "seconds": seconds,
        "events_per_second": events / seconds,
    }


def _reaches(
    ours: Sequence[Claim],
    anywhere: Sequence[openb_cloudified.Row],
    points: Sequence[mrq_2016.Point],
) -> Iterable[dict[str, Any]]:
    yield {
        "what": "openb: schedulers and workloads within 0.5 points of the published",
        "value": sum(claim.holds for claim in ours),
        "bound": f">= {len(ours)}",
    }
    for workload, shares, fgd, best, _ in openb_cloudified.gains(anywhere):
        yield {
            "what": f"openb, {workload}, shares in {shares}: points that cloudified tasks allocate more than FGD",
            "value": best.at_130 - fgd.at_130,
            "bound": f">= {openb_cloudified.GAIN:g}",
        }
    yield {
        "what": "MRQ at least RQ everywhere: percent of the lifetime behind, at worst",
        "value": max(point.rq_percent - point.mrq_percent for point in points),
        "bound": f"<= {mrq_2016.EQUAL:g}",
    }


def _speed(timed: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    openb = [row["seconds"] for row in timed if row["run"].startswith("openb")]
    few, many = (row for row in timed if not row["run"].startswith("openb"))
    yield {
        "what": "seconds of the slowest openb run",
        "value": max(openb),
        "bound": f"<= {MINUTE:g}",
    }
    yield {
        "what": f"seconds of {many['run']} on {many['nodes']} nodes",
        "value": many["seconds"],
        "bound": f"<= {MINUTE:g}",
    }
    yield {
        "what": f"time per event on {many['nodes']} nodes against {few['nodes']}",
        "value": few["events_per_second"] / many["events_per_second"],
        "bound": "<= 2.0",
    }


def _charts(
    anywhere: Sequence[openb_cloudified.Row],
    points: Sequence[mrq_2016.Point],
    rq: rq_2014.Result,
    slurm: Sequence[slurm_2018.Row],
    malleable: Sequence[malleable_2018.Row],
) -> list[tuple[str, list[str]]]:
    """A section for each group of recipes."""
    nodes, tasks = trace.nodes(), trace.tasks("default")
    local_curves = [
        (scheduler.name, local.run(nodes, tasks, scheduler, 42)) for scheduler in SCHEDULERS
    ]
    best = max(
        (row for row in anywhere if row.workload == "default" and row.fragments is not None),
        key=lambda row: row.at_130,
    )
    loose = cloudified.run(nodes, tasks, policies.load(best.placement), 42).curve
    curves = [*local_curves, (f"cloudified, {best.placement}", loose)]
    pairs = list(zip(rq.g_queue.records, rq.r_queue.records, strict=True))
    changes = {
        what: [(getattr(old, what) - getattr(new, what)) / 3600 for old, new in pairs]
        for what in ("wait", "execution", "lifetime")
    }
    return [
        (
            "The openb trace",
            [
                svg.lines(
                    "Allocation against arrivals",
                    [(name, _percent(curve)) for name, curve in curves],
                    x="% of the GPUs asked for",
                    y="% allocated",
                ),
                *(
                    svg.bars(
                        f"Allocated at 130 % arrivals, default workload, shares in {shares}",
                        [
                            (row.placement, row.at_130)
                            for row in anywhere
                            if (row.workload, row.shares) == ("default", shares)
                        ],
                        unit="%",
                    )
                    for shares in openb_cloudified.SIZES
                ),
            ],
        ),
        (
            "RQ against the G queue",
            [
                svg.histogram(f"Hours by which {what} got shorter", [(what, found)], x="hours")
                for what, found in changes.items()
            ],
        ),
        ("Who held which GPU", list(_occupancy())),
        (
            "MRQ",
            [
                svg.lines(
                    f"Lifetime decrease by {experiment}",
                    [
                        (
                            name,
                            [
                                (point.x, getattr(point, f"{name}_percent"))
                                for point in points
                                if point.experiment == experiment
                            ],
                        )
                        for name in ("rq", "mrq")
                    ],
                    x="as in the paper",
                    y="% of FCFS's lifetime",
                )
                for experiment in dict.fromkeys(point.experiment for point in points)
            ],
        ),
        (
            "Slurm with remote GPUs",
            [
                svg.bars(
                    f"Time to run {workload}, {cluster}",
                    [
                        (
                            f"{row.mode} {row.policy if cluster == 'policies' else ''}",
                            row.makespan / 60,
                        )
                        for row in slurm
                        if (row.cluster, row.workload) == (cluster, workload)
                    ],
                    unit="min",
                )
                for cluster, workload in dict.fromkeys((row.cluster, row.workload) for row in slurm)
            ],
        ),
        (
            "Malleable jobs",
            [
                svg.bars(
                    f"Mean time to complete, {size} jobs",
                    [(row.kind, row.completion / 60) for row in malleable if row.jobs == size],
                    unit="min",
                )
                for size in dict.fromkeys(row.jobs for row in malleable)
            ],
        ),
    ]


def _occupancy() -> Iterable[str]:
    """The papers' pictures: 50 jobs on 5 nodes (2014, figures 7 and 8), 40 on 10 (2016, figure 6)."""
    few = [job for job in tsubame.jobs(1, 400, 5) if job.nodes <= 3][:50]
    for queue in (G_QUEUE, R_QUEUE):
        yield _held(f"{queue.name}, 50 jobs on 5 nodes", few, 5, queue, NODE_2014, RCUDA_2014)
    model = JobModel(count=40, nodes=(3, 2), most_nodes=6, calls=magnitude(7), interarrival=100)
    for queue in (RQ, MRQ):
        yield _held(f"{queue.name}, 40 jobs on 10 nodes", model.jobs(1), 10, queue)


def _held(title: str, jobs: Sequence[Job], nodes: int, queue: Queue, *hardware: Any) -> str:
    names = dict(zip(("node", "remoting"), hardware, strict=False))
    outcome = Simulation(jobs, nodes, queue, occupancy=True, **names).run()
    since: dict[tuple[int, int], list[tuple[float, int]]] = {}
    blocks = []
    for at, node, job, change in outcome.occupancy:
        if change > 0:
            since.setdefault((node, job), []).append((at, change))
            continue
        left = -change
        held = since[node, job]
        while left:
            begin, gpus = held.pop()
            taken = min(gpus, left)
            if gpus > taken:
                held.append((begin, gpus - taken))
            left -= taken
            blocks.append(
                (node, begin, at, taken / 3, job, f"job {job}: {taken} GPUs of node {node}")
            )
    return svg.occupancy(
        title, [f"node {node}" for node in range(nodes)], blocks, groups=range(nodes)
    )


def _percent(curve: local.Curve) -> list[tuple[float, float]]:
    return list(zip(curve.asked, curve.allocated, strict=True))


def _row(claim: Claim) -> dict[str, Any]:
    return {
        "claim": claim.what,
        "published": claim.published,
        "measured": claim.measured,
        "holds": "yes" if claim.holds else "no",
        "why": claim.why,
    }


def _say(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)
