# SPDX-License-Identifier: Apache-2.0
"""The recipes of `studies`: what the papers claim, and what is measured here.

All recipes run, in as many processes as there are cores; the results do not depend on how many. As soon as a part is
done, its results are stored in studies/results and written into the tables of the pages beside the studies; a run of
all parts writes charts to build/sim/report.html, too. `./dev bench sim slurm rq` runs parts of it, and leaves the
results of the others as they are; `--seeds=3` runs it with fewer random orders and job sets than ten. Each measurement
is kept in build/sim/points until the code of the simulations changes, so that an interrupted run goes on where it
stopped.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from bench.report import machine
from gsaas.sim import policies
from gsaas.sim.report import svg
from studies import document
from studies import report as claims_page
from studies.batch import tsubame
from studies.batch.jobs import BatchJob, BatchJobModel, magnitude
from studies.batch.models import NODE_2014, RCUDA_2014
from studies.batch.queues import G_QUEUE, MRQ, R_QUEUE, RQ, QueueDiscipline
from studies.batch.simulation import BatchSimulation
from studies.claims import PublishedClaim, Verdict
from studies.openb import cloudified, local, trace
from studies.openb.schedulers import SCHEDULERS
from studies.points import BATCH, HPC, NGS, OPENB, Points
from studies.recipes import (
    dmr_2018,
    malleable_2018,
    malleable_mix_2018,
    mrq_2016,
    mrq_figures_2016,
    ngs_2024,
    openb_cloudified,
    openb_local,
    openb_remote,
    rq_2014,
    slurm_2018,
)

MINUTE = 60.0
GROWTH_NODES = (120, 480)
SEEDS = 10
"""How many random orders or job sets are run."""
REPORT = Path("build/sim/report.html")

POINTS = Path("build/sim/points")
QUICK_PARTS = ("dmr", "malleable", "ngs")

Part = dict[str, Any]
"""The results of one part: rows, and claims and bounds if it has any."""


def run(*parts: str, seeds: int = SEEDS, quick: bool = False) -> dict[str, Any]:
    """Run *parts*, or all, with so many *seeds*; store their results and write them into the pages.

    The bounds are this project's. *quick* runs *parts*, or those that take seconds, with one seed, and stores nothing.
    """
    if quick:
        with (
            tempfile.TemporaryDirectory(prefix="gsaas-bench-") as folder,
            ProcessPoolExecutor(len(os.sched_getaffinity(0))) as executor,
        ):
            points = Points(Path(folder), executor, _report_progress)
            return _result([PARTS[part](points, 1) for part in parts or QUICK_PARTS])
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as executor:
        points = Points(POINTS, executor, _report_progress)
        for part in parts or PARTS:
            _report_progress(part)
            document.write(part, {"seeds": seeds, **PARTS[part](points, seeds)})
            results = document.read()
            if not PARTS.keys() - results.keys():
                document.fill_pages(results)
    if missing := PARTS.keys() - results.keys():
        raise FileNotFoundError(f"run {', '.join(sorted(missing))} first")
    if not parts:
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        claims = [claim for part in PARTS for claim in results[part].get("claims", ())]
        REPORT.write_text(claims_page.html(claims, _charts(results)))
        _report_progress(f"look at {REPORT}")
    return _result([results[part] for part in parts or PARTS])


def _result(shown: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "bench": "sim",
        "machine": machine(),
        "rows": [row for one in shown for row in one["rows"]]
        + [_claim_row(claim) for one in shown for claim in one.get("claims", ())],
        "reach": [reach for one in shown for reach in one.get("reach", ())],
    }


def _run_openb(points: Points, seeds: int) -> Part:
    settings = openb_local.settings(seeds=openb_local.SEEDS[:seeds])
    found = list(zip(settings, points.map(openb_local.measure, settings, OPENB), strict=True))
    claims = list(openb_local.claims(found))
    reproduced = sum(claim.verdict is Verdict.REPRODUCED for claim in claims)
    return {
        "rows": [{"workload": setting.workload, **row.to_dict()} for setting, row in found],
        "claims": _plain(claims),
        "reach": [
            {
                "what": "openb: schedulers and workloads within 0.5 points of the published",
                "value": reproduced,
                "bound": f">= {len(claims)}",
            }
        ],
    }


def _cloudified_rows(
    points: Points, seeds: int, names: Sequence[str] | None = None
) -> list[openb_cloudified.CloudifiedRow]:
    """Return the rows of all policies, or those of *names*, and of what they are compared with."""
    # Seed by seed, here and below: what is measured with few seeds is used again with more.
    settings = [
        setting
        for seed in openb_cloudified.SEEDS[:seeds]
        for workload in trace.UNCONSTRAINED
        for setting in openb_cloudified.settings(workload, [seed], names)
    ]
    return openb_cloudified.merged(points.map(openb_cloudified.measure, settings, OPENB))


def _run_cloudified(points: Points, seeds: int) -> Part:
    rows = _cloudified_rows(points, seeds)
    return {
        "rows": [row.to_dict() for row in rows],
        "claims": _plain(openb_cloudified.claims(rows)),
        "reach": [
            {
                "what": f"openb, {workload}, shares in {shares}: points that cloudified tasks allocate more than the "
                "best tied to nodes",
                "value": best.at_130 - tied.at_130,
                "bound": f">= {openb_cloudified.GAIN:g}",
            }
            for workload, shares, tied, best, _ in openb_cloudified.gains(rows)
            # In thousandths hardly any placement could gain so much, as the column of repacked shows.
            if shares == openb_cloudified.AS_GIVEN
        ],
    }


def _run_remote(points: Points, seeds: int) -> Part:
    settings = [
        setting
        for seed in openb_cloudified.SEEDS[:seeds]
        for workload in trace.UNCONSTRAINED
        for setting in openb_remote.settings(workload, [seed])
    ]
    rows = openb_remote.merged(points.map(openb_remote.measure, settings, OPENB))
    tied = _cloudified_rows(points, seeds, names=())
    reach = []
    for one in openb_remote.margins(tied, rows):
        where = (
            f"openb, {one.workload}, shares in {one.shares}: points that local-gradient allocates"
        )
        reach.append(
            {
                "what": f"{where} more than FGD, whatever a daemon costs",
                "value": one.over_fgd,
                "bound": ">= 0",
            }
        )
        if one.below_repacked is not None:
            reach.append(
                {
                    "what": f"{where} less than repacked, where remote GPUs are free",
                    "value": one.below_repacked,
                    "bound": f"<= {openb_remote.WITHIN:g}",
                }
            )
        else:
            reach.append(
                {
                    "what": f"{where} more than the best tied to nodes, where remote GPUs are free",
                    "value": one.over_tied,
                    "bound": f">= {openb_cloudified.GAIN:g}",
                }
            )
    return {
        "rows": [row.to_dict() for row in rows],
        "claims": _plain(openb_remote.claims(tied, rows)),
        "reach": reach,
    }


def _run_rq(points: Points, seeds: int) -> Part:
    found = points.map(rq_2014.measure, rq_2014.SEEDS[:seeds], BATCH)
    return {"rows": list(rq_2014.mean_rows(found)), "claims": _plain(rq_2014.claims(found))}


def _mrq_rows(
    points: Points, seeds: int, settings: Sequence[mrq_2016.MrqSetting]
) -> list[mrq_2016.MrqRow]:
    wanted = [
        (setting.jobs(seed), setting) for seed in mrq_2016.SEEDS[:seeds] for setting in settings
    ]
    # Several experiments have a point in common: it is measured once.
    found = points.map(mrq_2016.measure_jobs, [jobs for jobs, _ in wanted], BATCH)
    return mrq_2016.summarise(
        mrq_2016.MrqPoint(setting, result)
        for (_, setting), result in zip(wanted, found, strict=True)
    )


def _run_mrq(points: Points, seeds: int) -> Part:
    rows = _mrq_rows(points, seeds, mrq_2016.settings())
    return {
        "rows": [row.to_dict() for row in rows],
        "claims": _plain(mrq_2016.claims(rows)),
        "reach": [
            {
                "what": "MRQ at least RQ everywhere: percent of the lifetime behind, at worst",
                "value": max(row.rq.mean - row.mrq.mean for row in rows if not row.printed),
                "bound": f"<= {mrq_2016.EQUAL:g}",
            }
        ],
    }


def _run_mrq_figures(points: Points, seeds: int) -> Part:
    rows = _mrq_rows(points, seeds, mrq_figures_2016.settings())
    return {
        "rows": [row.to_dict() for row in rows],
        "claims": _plain(mrq_figures_2016.claims(rows)),
    }


def _run_slurm(points: Points, seeds: int) -> Part:
    rows = points.map(slurm_2018.measure, slurm_2018.settings(slurm_2018.SEEDS[:seeds]), HPC)
    return {"rows": [row.to_dict() for row in rows], "claims": _plain(slurm_2018.claims(rows))}


def _run_dmr(points: Points, seeds: int) -> Part:
    rows = points.map(dmr_2018.measure, dmr_2018.settings(dmr_2018.SEEDS[:seeds]), HPC)
    return {"rows": [row.to_dict() for row in rows], "claims": _plain(dmr_2018.claims(rows))}


def _run_malleable(points: Points, seeds: int) -> Part:
    settings = malleable_2018.settings(seeds=malleable_2018.SEEDS[:seeds])
    rows = points.map(malleable_2018.measure, settings, HPC)
    return {"rows": [row.to_dict() for row in rows], "claims": _plain(malleable_2018.claims(rows))}


def _run_malleable_mix(points: Points, seeds: int) -> Part:
    settings = malleable_mix_2018.settings(malleable_2018.SEEDS[:seeds])
    rows = points.map(malleable_mix_2018.measure, settings, HPC)
    return {
        "rows": [row.to_dict() for row in rows],
        "claims": _plain(malleable_mix_2018.claims(rows)),
    }


def _run_ngs(points: Points, seeds: int) -> Part:
    rows = ngs_2024.rows(points.map(ngs_2024.measure, ngs_2024.SEEDS[:seeds], NGS))
    return {"rows": [row.to_dict() for row in rows], "claims": _plain(ngs_2024.claims(rows))}


def _run_speed(_points: Points, _seeds: int) -> Part:
    timings = _time_runs()
    return {"rows": timings, "reach": list(_speed_bounds(timings))}


PARTS: Mapping[str, Callable[[Points, int], Part]] = {
    "openb": _run_openb,
    "cloudified": _run_cloudified,
    "remote": _run_remote,
    "rq": _run_rq,
    "mrq": _run_mrq,
    "mrq-figures": _run_mrq_figures,
    "slurm": _run_slurm,
    "dmr": _run_dmr,
    "malleable": _run_malleable,
    "malleable-mix": _run_malleable_mix,
    "ngs": _run_ngs,
    "speed": _run_speed,
}


def _plain(claims: Iterable[PublishedClaim]) -> list[dict[str, Any]]:
    return [claim.to_dict() for claim in claims]


def _time_runs() -> list[dict[str, Any]]:
    """Return the CPU time of the largest runs on one core, and of RQ with few and with many nodes."""
    _report_progress("timing, one run after the other")
    nodes, tasks = trace.nodes(), trace.tasks("default")
    rows = [
        _time_run(
            f"openb, {scheduler.name}",
            len(nodes),
            partial(local.run, nodes, tasks, scheduler, 42),
        )
        for scheduler in SCHEDULERS
    ]
    policy = policies.load(policies.names()[0])
    rows.append(
        _time_run(
            "openb, cloudified", len(nodes), partial(cloudified.run, nodes, tasks, policy, 42)
        )
    )
    for count in GROWTH_NODES:
        jobs = tsubame.jobs(1, tsubame.JOBS * count // tsubame.NODES, count)
        simulation = BatchSimulation(jobs, count, R_QUEUE, node=NODE_2014, remoting=RCUDA_2014)
        rows.append(_time_run(f"{len(jobs)} jobs, RQ", count, simulation.run))
    return rows


def _time_run(name: str, nodes: int, run: Callable[[], Any]) -> dict[str, Any]:
    """Return the timing of one run of a simulation."""
    begin = time.process_time()
    outcome = run()
    seconds = time.process_time() - begin
    # The runs of the openb trace have one event for each arrival, and record a curve instead of a number of events.
    curve = getattr(outcome, "curve", outcome)
    events = len(curve.asked) if hasattr(curve, "asked") else outcome.events
    return {
        "run": name,
        "nodes": nodes,
        "events": events,
        "seconds": seconds,
        "events_per_second": events / seconds,
    }


def _speed_bounds(timings: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    openb = [row["seconds"] for row in timings if row["run"].startswith("openb")]
    few, many = (row for row in timings if not row["run"].startswith("openb"))
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


def _charts(results: document.Results) -> list[tuple[str, list[str]]]:
    """Return the sections of the report: a heading and charts for each group of recipes."""
    placements = results["cloudified"]["rows"]
    slurm, malleable = results["slurm"]["rows"], results["malleable"]["rows"]
    rq = rq_2014.run(nodes=[tsubame.NODES], progress=_report_progress)
    nodes, tasks = trace.nodes(), trace.tasks("default")
    local_curves = [
        (scheduler.name, local.run(nodes, tasks, scheduler, 42)) for scheduler in SCHEDULERS
    ]
    best = max(
        (
            row
            for row in placements
            if row["workload"] == "default" and row["fragments"] is not None
        ),
        key=lambda row: row["at_130"],
    )["placement"]
    cloudified_curve = cloudified.run(nodes, tasks, policies.load(best), 42).curve
    curves = [*local_curves, (f"cloudified, {best}", cloudified_curve)]
    pairs = list(zip(rq.g_queue.records, rq.r_queue.records, strict=True))
    hours_saved = {
        what: [(getattr(old, what) - getattr(new, what)) / 3600 for old, new in pairs]
        for what in ("wait", "execution", "lifetime")
    }
    return [
        (
            "The openb trace",
            [
                svg.lines(
                    "Allocation against arrivals",
                    [(name, _points(curve)) for name, curve in curves],
                    x="% of the GPUs asked for",
                    y="% allocated",
                ),
                *(
                    svg.bars(
                        f"Allocated at 130 % arrivals, default workload, shares in {shares}",
                        [
                            (row["placement"], row["at_130"])
                            for row in placements
                            if (row["workload"], row["shares"]) == ("default", shares)
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
                svg.histogram(f"Hours by which {what} got shorter", [(what, saved)], x="hours")
                for what, saved in hours_saved.items()
            ],
        ),
        ("GPU occupancy", list(_occupancy())),
        (
            "MRQ",
            [*_mrq_charts(results["mrq"]["rows"]), *_mrq_charts(results["mrq-figures"]["rows"])],
        ),
        (
            "Slurm with remote GPUs",
            [
                svg.bars(
                    f"Time to run {workload}, {cluster}",
                    [
                        (
                            f"{row['mode']} {row['policy'] if cluster == 'policies' else ''}",
                            row["makespan"] / 60,
                        )
                        for row in slurm
                        if (row["cluster"], row["workload"]) == (cluster, workload)
                    ],
                    unit="min",
                )
                for cluster, workload in dict.fromkeys(
                    (row["cluster"], row["workload"]) for row in slurm
                )
            ],
        ),
        (
            "Malleable jobs",
            [
                svg.bars(
                    f"Mean time to complete, {size} jobs",
                    [
                        (row["kind"], row["completion"] / 60)
                        for row in malleable
                        if row["jobs"] == size
                    ],
                    unit="min",
                )
                for size in dict.fromkeys(row["jobs"] for row in malleable)
            ],
        ),
    ]


def _mrq_charts(rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """Yield a chart for each experiment, with a line for RQ and one for MRQ of each variant of the jobs."""
    for experiment in dict.fromkeys(row["experiment"] for row in rows):
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if row["experiment"] == experiment:
                variant, _, _ = row["label"].rpartition(", ")
                more = [variant] if variant else []
                more += ["as printed"] if row["printed"] else []
                for name in ("rq", "mrq"):
                    line = lines.setdefault(", ".join([name, *more]), [])
                    line.append((row["x"], row[f"{name}_percent"]))
        yield svg.lines(
            f"Lifetime decrease by {experiment}",
            list(lines.items()),
            x="as in the paper",
            y="% of FCFS's lifetime",
        )


def _occupancy() -> Iterable[str]:
    """Yield the charts of the papers: 50 jobs on 5 nodes (2014, figures 7 and 8), 40 on 10 (2016, figure 6)."""
    few = [job for job in tsubame.jobs(1, 400, 5) if job.nodes <= 3][:50]
    for queue in (G_QUEUE, R_QUEUE):
        yield _occupancy_chart(
            f"{queue.name}, 50 jobs on 5 nodes", few, 5, queue, NODE_2014, RCUDA_2014
        )
    model = BatchJobModel(
        count=40, nodes=(3, 2), most_nodes=6, calls=magnitude(7), interarrival=100
    )
    for queue in (RQ, MRQ):
        yield _occupancy_chart(f"{queue.name}, 40 jobs on 10 nodes", model.jobs(1), 10, queue)


def _occupancy_chart(
    title: str, jobs: Sequence[BatchJob], nodes: int, queue: QueueDiscipline, *hardware: Any
) -> str:
    """Return the chart of which jobs had GPUs of which node when. *hardware* are the models of node and remoting."""
    names = dict(zip(("node", "remoting"), hardware, strict=False))
    outcome = BatchSimulation(jobs, nodes, queue, occupancy=True, **names).run()
    # (node, job) -> begin and number of GPUs of claims that are still open; a release may end several of them.
    open_claims: dict[tuple[int, int], list[tuple[float, int]]] = {}
    blocks = []
    for at, node, job, change in outcome.occupancy:
        if change > 0:
            open_claims.setdefault((node, job), []).append((at, change))
            continue
        left = -change
        claims = open_claims[node, job]
        while left:
            begin, gpus = claims.pop()
            taken = min(gpus, left)
            if gpus > taken:
                claims.append((begin, gpus - taken))
            left -= taken
            blocks.append(
                (node, begin, at, taken / 3, job, f"job {job}: {taken} GPUs of node {node}")
            )
    return svg.occupancy(
        title, [f"node {node}" for node in range(nodes)], blocks, groups=range(nodes)
    )


def _points(curve: local.AllocationCurve) -> list[tuple[float, float]]:
    return list(zip(curve.asked, curve.allocated, strict=True))


def _claim_row(claim: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "claim": claim["what"],
        "published": claim["published"],
        "measured": claim["measured"],
        "verdict": claim["verdict"],
        "why": claim["why"],
    }


def _report_progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
