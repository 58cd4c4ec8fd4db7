# SPDX-License-Identifier: Apache-2.0
"""The report of a scenario: its results as tables for programs, and as an HTML page for people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gsaas.sim.cloud import Outcome
from gsaas.sim.report import page, svg
from gsaas.sim.scenario import Run
from gsaasclient import spreadsheets

MOST_ROWS = 160
"""The most GPUs that the chart of GPU occupancy shows: with more, its rows would be too thin to tell apart."""

Results = Sequence[tuple[Run, Outcome]]
"""The runs of a scenario, each with its result."""

SUMMARY_HEADINGS = (
    "run",
    "policy",
    "locality",
    "hosts",
    "GPUs",
    "served",
    "refused",
    "mean wait, s",
    "95 % wait at most, s",
    "longest wait, s",
    "memory used, %",
    "spread over hosts, %",
)


def summary(run: Run, outcome: Outcome) -> dict[str, Any]:
    """Return one run in numbers: waits in seconds, *utilisation* and *spread* in percent.

    *spread_percent* is the percentage of the served requests whose cGPUs were on several hosts.
    """
    waits = outcome.waits
    served = [record for record in outcome.records if record.start is not None]
    spread = sum(record.hosts > 1 for record in served)
    return {
        "run": run.name,
        "policy": run.policy,
        "locality": run.locality,
        "hosts": run.site.total_hosts,
        "gpus": run.site.total_gpus,
        "served": len(served),
        "refused": outcome.refused,
        "mean_wait": sum(waits) / len(waits) if waits else 0.0,
        "p95_wait": waits[min(int(0.95 * len(waits)), len(waits) - 1)] if waits else 0.0,
        "longest_wait": waits[-1] if waits else 0.0,
        "utilisation_percent": outcome.utilisation,
        "spread_percent": 100 * spread / len(served) if served else 0.0,
    }


def records(results: Results) -> list[dict[str, Any]]:
    """Return one row for each request of each run. Times are in seconds; a refused request has no start and no end."""
    return [
        {
            "run": run.name,
            "request": record.id,
            "arrival": record.arrival,
            "start": record.start,
            "end": record.end,
            "wait": record.wait,
            "cgpus": record.count,
            "hosts": record.hosts,
        }
        for run, outcome in results
        for record in outcome.records
    ]


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows with equal keys to a CSV file, with a header line."""
    with path.open("w", newline="") as file:
        lines = (map(spreadsheets.cell, row.values()) for row in rows)
        spreadsheets.write(file, [list(rows[0]) if rows else [], *lines])


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows with equal keys to a Parquet file. Raises `ImportError` if pyarrow is not installed."""
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)


def html(title: str, results: Results, first: Sequence[tuple[str, Sequence[str]]] = ()) -> str:
    """Return the HTML page: the runs side by side, the queue, the waits, the claimed memory, and GPU occupancy.

    The page is titled *title*, or after the first run if that is empty. The sections *first*, each a heading and pieces
    of HTML, come before the others.
    """
    rows = [summary(run, outcome) for run, outcome in results]
    (first_run, _), *_ = results
    requests = rows[0]["served"] + rows[0]["refused"]
    subtitle = f"{requests:,} requests, replayed in {len(results)} runs."
    times = [at for _, outcome in results for at, *_ in outcome.occupancy] or [0.0]
    span = min(times), max(times)
    waits = [(run.name, [wait / 60 for wait in outcome.waits]) for run, outcome in results]
    sections = [
        *first,
        (
            "Side by side",
            [
                page.table(SUMMARY_HEADINGS, [list(row.values()) for row in rows]),
                svg.bars(
                    "Mean wait", [(row["run"], row["mean_wait"] / 60) for row in rows], unit="min"
                ),
            ],
        ),
        (
            "The queue",
            [
                svg.lines(
                    "Requests in the queue",
                    [
                        (run.name, [(sample.at, sample.queue) for sample in outcome.samples])
                        for run, outcome in results
                    ],
                    x="time",
                    y="requests",
                    steps=True,
                    time=True,
                ),
                svg.histogram("Distribution of waits", waits, x="minutes"),
                *_time_saved(results),
            ],
        ),
        (
            "The GPUs",
            [
                svg.lines(
                    "Claimed GPU memory",
                    [(run.name, _claimed_percent(run, outcome)) for run, outcome in results],
                    x="time",
                    y="% of all",
                    steps=True,
                    time=True,
                ),
                *(
                    _occupancy(run, outcome, number, span)
                    for number, (run, outcome) in enumerate(results)
                ),
            ],
        ),
    ]
    return page.page(title or first_run.name, subtitle, sections)


def _time_saved(results: Results) -> list[str]:
    """Return a chart of how much sooner each request ended than in the first run; none if there is one run only."""
    (base, before), *compared = results
    found = []
    for run, after in compared:
        pairs = zip(before.records, after.records, strict=True)
        earlier = [
            (old.end - new.end) / 60
            for old, new in pairs
            if old.end is not None and new.end is not None
        ]
        found.append((run.name, earlier))
    if not found:
        return []
    title = f"Minutes that requests ended sooner than in {base.name}"
    return [svg.histogram(title, found, x="minutes", first=1)]


def _claimed_percent(run: Run, outcome: Outcome) -> list[tuple[float, float]]:
    total = run.site.total_mb
    return [(sample.at, 100 * sample.used_mb / total) for sample in outcome.samples]


def _occupancy(run: Run, outcome: Outcome, colour: int, span: tuple[float, float]) -> str:
    """Return the chart of which request had claims on which GPU when, in shades of the *colour* of the run."""
    rows = [gpu.uuid for gpu in sorted(run.site.pool(), key=lambda gpu: gpu.uuid)][:MOST_ROWS]
    memory_mb = {gpu.uuid: gpu.memory_mb for gpu in run.site.pool()}
    number = {uuid: place for place, uuid in enumerate(rows)}
    # A request may have several cGPUs on one GPU: each release ends the latest claim that is still open.
    open_claims: dict[tuple[str, int], list[tuple[float, int]]] = {}
    blocks = []
    for at, uuid, request, change in outcome.occupancy:
        if uuid not in number:
            continue
        if change > 0:
            open_claims.setdefault((uuid, request), []).append((at, change))
        else:
            since, size = open_claims[uuid, request].pop()
            share = size / memory_mb[uuid]
            label = f"request {request}: {size} MiB of {uuid}"
            blocks.append((number[uuid], since, at, share, request, label))
    hosts = [uuid.rpartition("-")[0] for uuid in rows]
    groups = [
        0,
        *(
            place + 1
            for place, (host, following) in enumerate(pairwise(hosts))
            if host != following
        ),
    ]
    shown = "" if len(rows) == run.site.total_gpus else f" (the first {len(rows)})"
    title = f"GPU occupancy{shown}: {run.name}"
    return svg.occupancy(title, hosts, blocks, groups=groups, span=span, shades_of=colour)
