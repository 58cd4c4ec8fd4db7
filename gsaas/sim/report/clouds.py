"""What came of a scenario: tables for programs, and a page for people."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gsaas.sim.cloud import Outcome
from gsaas.sim.report import page, svg
from gsaas.sim.scenario import Run

MOST_ROWS = 160
"""GPUs that the picture of who held what shows; more than this nobody could tell apart."""

Results = Sequence[tuple[Run, Outcome]]

HEADINGS = (
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
    """One run in numbers: seconds and percent."""
    waits = outcome.waits
    served = [record for record in outcome.records if record.start is not None]
    spread = sum(record.hosts > 1 for record in served)
    return {
        "run": run.name,
        "policy": run.policy,
        "locality": run.locality,
        "hosts": run.site.hosts,
        "gpus": run.site.hosts * run.site.gpus,
        "served": len(served),
        "refused": outcome.refused,
        "mean_wait": sum(waits) / len(waits) if waits else 0.0,
        "p95_wait": waits[min(int(0.95 * len(waits)), len(waits) - 1)] if waits else 0.0,
        "longest_wait": waits[-1] if waits else 0.0,
        "utilisation_percent": outcome.utilisation,
        "spread_percent": 100 * spread / len(served) if served else 0.0,
    }


def records(results: Results) -> list[dict[str, Any]]:
    """One row for each request in each run."""
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
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Raises `ImportError` where pyarrow is not installed."""
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)


def html(title: str, results: Results) -> str:
    """The page: a comparison, the queue, the waits, what was allocated, and who held which GPU."""
    rows = [summary(run, outcome) for run, outcome in results]
    (first, _), *_ = results
    lead = f"{rows[0]['served'] + rows[0]['refused']:,} requests, replayed in {len(results)} ways."
    waits = [(run.name, [wait / 60 for wait in outcome.waits]) for run, outcome in results]
    sections = [
        (
            "Side by side",
            [
                page.table(HEADINGS, [list(row.values()) for row in rows]),
                svg.bars(
                    "Mean wait", [(row["run"], row["mean_wait"] / 60) for row in rows], unit="min"
                ),
            ],
        ),
        (
            "The queue",
            [
                svg.lines(
                    "Requests that wait",
                    [
                        (run.name, [(sample.at, sample.queue) for sample in outcome.samples])
                        for run, outcome in results
                    ],
                    x="time",
                    y="requests",
                    steps=True,
                    time=True,
                ),
                svg.histogram("How long they waited", waits, x="minutes"),
                *_changes(results),
            ],
        ),
        (
            "The GPUs",
            [
                svg.lines(
                    "GPU memory that was claimed",
                    [(run.name, _claimed(run, outcome)) for run, outcome in results],
                    x="time",
                    y="% of all",
                    steps=True,
                    time=True,
                ),
                *(_occupancy(run, outcome) for run, outcome in results),
            ],
        ),
    ]
    return page.page(title or first.name, lead, sections)


def _changes(results: Results) -> list[str]:
    """How much sooner each request ended than in the first run."""
    (base, before), *others = results
    found = []
    for run, after in others:
        pairs = zip(before.records, after.records, strict=True)
        earlier = [
            (old.end - new.end) / 60
            for old, new in pairs
            if old.end is not None and new.end is not None
        ]
        found.append((run.name, earlier))
    if not found:
        return []
    return [
        svg.histogram(f"Minutes that requests ended sooner than in {base.name}", found, x="minutes")
    ]


def _claimed(run: Run, outcome: Outcome) -> list[tuple[float, float]]:
    total = run.site.hosts * run.site.gpus * run.site.memory_mb
    return [(sample.at, 100 * sample.used_mb / total) for sample in outcome.samples]


def _occupancy(run: Run, outcome: Outcome) -> str:
    rows = [gpu.uuid for gpu in sorted(run.site.pool(), key=lambda gpu: gpu.uuid)][:MOST_ROWS]
    number = {uuid: place for place, uuid in enumerate(rows)}
    open_since: dict[tuple[str, int], list[tuple[float, int]]] = {}
    blocks = []
    for at, uuid, request, change in outcome.occupancy:
        if uuid not in number:
            continue
        if change > 0:
            open_since.setdefault((uuid, request), []).append((at, change))
        else:
            since, size = open_since[uuid, request].pop()
            share = size / run.site.memory_mb
            what = f"request {request}: {size} MiB of {uuid}"
            blocks.append((number[uuid], since, at, share, request, what))
    hosts = [uuid.rpartition("-")[0] for uuid in rows]
    groups = [0, *(place + 1 for place, (one, other) in enumerate(pairwise(hosts)) if one != other)]
    shown = "" if len(rows) == run.site.hosts * run.site.gpus else f" (the first {len(rows)})"
    return svg.occupancy(f"Who held which GPU{shown}: {run.name}", hosts, blocks, groups=groups)
