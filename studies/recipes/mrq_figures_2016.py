# SPDX-License-Identifier: Apache-2.0
"""RQ and MRQ against FCFS for jobs of several lengths, sizes and GPUs, and in several queues, over the intensity of
GPU communication: figures 8 to 11 of the MRQ paper of 2016.

The intensity is the amount of data that a process moves to and from its GPU, which the paper's Table 4 varies in all of
these experiments. `mrq_2016` has the same experiments at one intensity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from studies.batch.jobs import BatchJobModel, magnitude
from studies.claims import PublishedClaim, Verdict, at_least, at_most
from studies.recipes.mrq_2016 import EQUAL, JOBS, SOURCE, MrqRow, MrqSetting, majority

BYTES = (9, 11, 12)
"""Powers of ten of the bytes of each process."""
LENGTH, SIZE, GPUS, QUEUE = "figure-8", "figure-9", "figure-10", "figure-11"
LENGTHS = {f"10^{x} s": magnitude(x) for x in (1, 2, 3, 4)}
SIZES = {f"{x} nodes": (x, x - 1) for x in (5, 15, 30, 60)}
MAJORITIES = {f"{x}-GPU majority": majority(x) for x in (1, 2, 3)}
INTERVALS = {f"every {x:g} s": x for x in (1.0, 3.0, 100.0, 1000.0)}
NOT_BUSY = 3.0
"""Seconds between arrivals from which on the paper finds no difference."""
LOW = BYTES[0]
"""The intensity that is not high."""

Figure = Mapping[tuple[str, int], MrqRow]
"""What is varied, and the power of ten of the bytes -> the row."""


def settings(count: int = JOBS) -> list[MrqSetting]:
    """Return the settings of the four figures, with job sets of *count* jobs."""
    model = BatchJobModel(count=count)
    models = {
        LENGTH: {name: model.with_(other_seconds=value) for name, value in LENGTHS.items()},
        SIZE: {name: model.with_(nodes=value) for name, value in SIZES.items()},
        GPUS: {name: model.with_(gpus=value) for name, value in MAJORITIES.items()},
        QUEUE: {name: model.with_(interarrival=value) for name, value in INTERVALS.items()},
    }
    return [
        MrqSetting(figure, x, _label(name, x), one.with_(gpu_bytes=magnitude(x)))
        for figure, variants in models.items()
        for name, one in variants.items()
        for x in BYTES
    ]


def claims(rows: Sequence[MrqRow]) -> Iterator[PublishedClaim]:
    """Yield what the paper says about the four figures, with what was measured."""
    by_label = {(row.experiment, row.label): row for row in rows}

    def figure(experiment: str, names: Mapping[str, object]) -> Figure:
        return {(name, x): by_label[experiment, _label(name, x)] for name in names for x in BYTES}

    yield from _lengths(figure(LENGTH, LENGTHS))
    yield from _sizes(figure(SIZE, SIZES))
    yield from _majorities(figure(GPUS, MAJORITIES))
    yield from _queues(figure(QUEUE, INTERVALS))


def _lengths(rows: Figure) -> Iterator[PublishedClaim]:
    short, long = (list(LENGTHS)[end] for end in (0, -1))
    yield PublishedClaim(
        "at every intensity, RQ and MRQ do badly with short jobs, RQ more so",
        SOURCE.format("4.3, figure 8"),
        "short jobs gain less; MRQ tolerates them much better",
        "; ".join(
            f"10^{x} bytes: {_both(rows[short, x])} for {short}, {_both(rows[long, x])} for {long}"
            for x in BYTES
        ),
        _everywhere(
            [
                rows[short, x].rq.mean < rows[short, x].mrq.mean < rows[long, x].mrq.mean
                for x in BYTES
            ]
        ),
        "RQ < MRQ for the shortest, which gain less than the longest",
    )


def _sizes(rows: Figure) -> Iterator[PublishedClaim]:
    small, large = (list(SIZES)[end] for end in (0, -1))
    yield PublishedClaim(
        "at every intensity, RQ and MRQ do better with large jobs",
        SOURCE.format("4.4, figure 9"),
        "the larger, the better",
        "; ".join(
            f"10^{x} bytes: {_both(rows[small, x])} for {small}, {_both(rows[large, x])} for {large}"
            for x in BYTES
        ),
        _everywhere(
            [
                rows[large, x].rq.mean > rows[small, x].rq.mean
                and rows[large, x].mrq.mean > rows[small, x].mrq.mean
                for x in BYTES
            ]
        ),
        "more for the largest than for the smallest",
    )


def _majorities(rows: Figure) -> Iterator[PublishedClaim]:
    one, two, three = MAJORITIES
    pairs = {
        x: (rows[two, x].mrq.mean, max(rows[one, x].mrq.mean, rows[three, x].mrq.mean))
        for x in BYTES
    }
    factors = [mine / others if others > 0 else float("inf") for mine, others in pairs.values()]
    yield PublishedClaim(
        "at every intensity, jobs of two GPUs gain most on nodes of three",
        SOURCE.format("4.5, figure 10"),
        "more than 3 times the others' decrease",
        "; ".join(
            f"10^{x} bytes: MRQ {mine:.1f} % against {others:.1f} %"
            for x, (mine, others) in pairs.items()
        ),
        at_least(min(factors), 3, none=1),
        "> 3 times, each",
    )


def _queues(rows: Figure) -> Iterator[PublishedClaim]:
    behind = max(max(row.rq.mean, 0.0) - row.mrq.mean for row in rows.values())
    yield PublishedClaim(
        "however long the queue, MRQ is better than RQ and FCFS",
        SOURCE.format("4.6, figure 11"),
        "in all cases",
        f"at worst {max(behind, 0):.2f} % of FCFS's lifetime behind the better of them",
        at_most(behind, EQUAL),
        f"≤ {EQUAL:g} % of FCFS's lifetime",
    )
    low = [rows[name, LOW] for name, interval in INTERVALS.items() if interval < NOT_BUSY]
    high = [rows[name, BYTES[-1]] for name, interval in INTERVALS.items() if interval < NOT_BUSY]
    yield PublishedClaim(
        "with a queue, RQ is better than FCFS while the intensity is not high",
        SOURCE.format("4.6, figure 11"),
        "if not high",
        f"{low[0].rq.mean:.1f} % at 10^{LOW} bytes, {high[0].rq.mean:.1f} % at 10^{BYTES[-1]}",
        _everywhere([row.rq.mean > 0 for row in low]),
        "> 0 % at the lowest intensity",
    )
    idle = {(name, x): row for (name, x), row in rows.items() if INTERVALS[name] >= NOT_BUSY}
    unlike = [
        f"{row.label}: {_both(row)}"
        for row in idle.values()
        if max(abs(row.rq.mean), abs(row.mrq.mean)) > EQUAL
    ]
    slowest = list(INTERVALS)[-1]
    alike = all(
        max(abs(rows[slowest, x].rq.mean), abs(rows[slowest, x].mrq.mean)) <= EQUAL for x in BYTES
    )
    partly = Verdict.DIRECTION_ONLY if alike else Verdict.REFUTED
    yield PublishedClaim(
        "without a queue all three are alike at every intensity",
        SOURCE.format("4.6, figure 11"),
        "from a mean inter-arrival time of 3 on",
        "; ".join(unlike) or "all alike",
        partly if unlike else Verdict.REPRODUCED,
        f"≤ {EQUAL:g} % apart from 3 on",
        "jobs of 30 nodes and 1,000 s keep 100 nodes busy up to one every 300 s: the 3 can only be a power of ten"
        if unlike
        else "",
    )


def _everywhere(holds: Sequence[bool]) -> Verdict:
    if all(holds):
        return Verdict.REPRODUCED
    return Verdict.DIRECTION_ONLY if any(holds) else Verdict.REFUTED


def _both(row: MrqRow) -> str:
    return f"{row.rq.mean:.1f} and {row.mrq.mean:.1f} %"


def _label(name: str, x: float) -> str:
    return f"{name}, 10^{x:g} bytes"
