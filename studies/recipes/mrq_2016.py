# SPDX-License-Identifier: Apache-2.0
"""RQ and MRQ against FCFS on job sets that differ in one characteristic (MRQ paper of 2016, sections 4 and 5).

A point is one job set: 10,000 jobs on 100 nodes. One characteristic is varied, the others are those of the paper's
Table 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean, median
from typing import Any

from studies.batch import tsubame
from studies.batch.jobs import BatchJobModel, magnitude
from studies.batch.queues import FCFS, MRQ, MRQ_PRINTED, RQ, RQ_PRINTED
from studies.batch.simulation import BatchOutcome, BatchSimulation
from studies.claims import (
    BAND,
    PublishedClaim,
    Sample,
    Verdict,
    at_least,
    at_most,
    band_text,
    near,
    sample,
)

SOURCE = "Markthub et al., MRQ, 2016, section {}"
SEEDS = range(1, 11)
NODES = 100
JOBS = 10_000
EQUAL = 0.5
"""Percent of FCFS's mean lifetime by which two queues may differ and count as equally good."""


@dataclass(frozen=True)
class MrqJobs:
    """A job set: what it is drawn from, on how many nodes it runs, and the seed."""

    model: BatchJobModel
    nodes: int
    seed: int
    printed: bool = False
    """Whether RQ and MRQ run as the papers print them, instead of as we read them."""


@dataclass(frozen=True)
class MrqResult:
    """The results of one job set. Decreases are of a job's lifetime, against FCFS: positive is better."""

    fcfs_lifetime: float
    """Mean, in seconds."""
    rq_decrease: float
    mrq_decrease: float
    """The median over the jobs, in seconds, as *rq_decrease*."""
    rq_worse: float
    mrq_worse: float
    """Percent of the jobs with a longer lifetime than under FCFS, as *rq_worse*."""

    @property
    def rq_percent(self) -> float:
        """RQ's decrease in percent of FCFS's mean lifetime."""
        return 100 * self.rq_decrease / self.fcfs_lifetime

    @property
    def mrq_percent(self) -> float:
        """MRQ's decrease in percent of FCFS's mean lifetime."""
        return 100 * self.mrq_decrease / self.fcfs_lifetime


@dataclass(frozen=True)
class MrqSetting:
    """A job set to run, and where its result belongs."""

    experiment: str
    x: float
    label: str
    model: BatchJobModel
    nodes: int = NODES
    printed: bool = False

    def jobs(self, seed: int) -> MrqJobs:
        """Return what to measure with *seed*."""
        return MrqJobs(self.model, self.nodes, seed, self.printed)


@dataclass(frozen=True)
class MrqPoint:
    """The result of one job set, and the setting that it belongs to."""

    setting: MrqSetting
    result: MrqResult


@dataclass(frozen=True)
class MrqRow:
    """One setting over several seeds: decreases in percent of FCFS's mean lifetime, and percent of jobs worse off."""

    experiment: str
    x: float
    label: str
    rq: Sample
    mrq: Sample
    rq_worse: float
    mrq_worse: float
    printed: bool = False
    """Whether RQ and MRQ ran as the papers print them, instead of as we read them."""

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the benchmark prints it."""
        return {
            "experiment": self.experiment,
            "x": self.x,
            "label": self.label,
            "rq_percent": self.rq.mean,
            "rq_spread": self.rq.spread,
            "rq_runs": list(self.rq.values),
            "mrq_percent": self.mrq.mean,
            "mrq_spread": self.mrq.spread,
            "mrq_runs": list(self.mrq.values),
            "rq_worse": self.rq_worse,
            "mrq_worse": self.mrq_worse,
            "printed": self.printed,
        }


def settings(count: int = JOBS) -> list[MrqSetting]:
    """Return the settings of all experiments, with job sets of *count* jobs."""
    model = BatchJobModel(count=count)
    intense = model.with_(calls=magnitude(7))
    busy = intense.with_(
        gpus=tsubame.GPUS, interarrival=tsubame.MEAN_EXECUTION / 30, other_seconds=(15_000, 1500)
    )
    intensity = [
        MrqSetting("intensity", x, f"10^{x:g} calls", model.with_(calls=magnitude(x)))
        for x in (5, 6, 6.5, 7, 7.5, 8)
    ]
    return [
        *intensity,
        *(replace(setting, printed=True) for setting in intensity),
        *(
            MrqSetting("data", x, f"10^{x:g} bytes", model.with_(gpu_bytes=magnitude(x)))
            for x in (10, 11, 12)
        ),
        *(
            MrqSetting("length", x, f"10^{x:g} s", model.with_(other_seconds=magnitude(x)))
            for x in (1, 2, 3, 4)
        ),
        *(
            MrqSetting("size", x, f"{x} nodes", intense.with_(nodes=(x, max(x - 1, 1))))
            for x in (5, 15, 30, 60)
        ),
        *(
            MrqSetting("gpus", x, f"{x}-GPU majority", intense.with_(gpus=majority(x)))
            for x in (1, 2, 3)
        ),
        *(
            MrqSetting("queue", x, f"every {x} s", intense.with_(interarrival=float(x)))
            for x in (1, 3, 100, 1000)
        ),
        *(
            MrqSetting("tsubame", x, f"10^{x:g} calls", busy.with_(calls=magnitude(x)))
            for x in (6, 7, 8, 8.5)
        ),
    ]


def measure(setting: MrqSetting, seed: int = SEEDS[0]) -> MrqPoint:
    """Run the three queues on one job set of *setting*; return the comparison."""
    return MrqPoint(setting, measure_jobs(setting.jobs(seed)))


def measure_jobs(wanted: MrqJobs) -> MrqResult:
    """Run the three queues on one job set; return the comparison."""
    jobs = wanted.model.jobs(wanted.seed)
    queues = (FCFS, RQ_PRINTED, MRQ_PRINTED) if wanted.printed else (FCFS, RQ, MRQ)
    fcfs, rq, mrq = (BatchSimulation(jobs, wanted.nodes, queue).run() for queue in queues)

    def decreases(outcome: BatchOutcome) -> list[float]:
        pairs = zip(fcfs.records, outcome.records, strict=True)
        return [before.lifetime - after.lifetime for before, after in pairs]

    by_rq, by_mrq = decreases(rq), decreases(mrq)
    return MrqResult(
        mean(record.lifetime for record in fcfs.records),
        median(by_rq),
        median(by_mrq),
        _percent_below_zero(by_rq),
        _percent_below_zero(by_mrq),
    )


def summarise(points: Iterable[MrqPoint]) -> list[MrqRow]:
    """Return a row for each setting, from its points with several seeds."""
    by_setting: dict[tuple[str, float, str, bool], list[MrqPoint]] = {}
    for point in points:
        one = point.setting
        by_setting.setdefault((one.experiment, one.x, one.label, one.printed), []).append(point)
    return [
        MrqRow(
            *(experiment, x, label),
            sample(found, lambda point: point.result.rq_percent),
            sample(found, lambda point: point.result.mrq_percent),
            mean(point.result.rq_worse for point in found),
            mean(point.result.mrq_worse for point in found),
            printed,
        )
        for (experiment, x, label, printed), found in by_setting.items()
    ]


def claims(points: Sequence[MrqRow]) -> Iterator[PublishedClaim]:
    """Yield the paper's claims about MRQ, with what was measured."""
    printed = [point for point in points if point.printed]
    points = [point for point in points if not point.printed]
    worst = min(points, key=lambda point: point.mrq.mean - point.rq.mean)
    behind = worst.rq.mean - worst.mrq.mean
    yield PublishedClaim(
        "MRQ is never behind RQ",
        SOURCE.format("4"),
        "in every situation",
        f"at worst {max(behind, 0):.2f} % of FCFS's lifetime behind ({worst.experiment}, {worst.label})",
        at_most(behind, EQUAL),
        f"≤ {EQUAL:g} % of FCFS's lifetime",
        "where remote GPUs cost next to nothing, a migration costs slightly more"
        if behind > 0
        else "",
    )
    helped = [point for point in points if point.rq.mean > 0]
    if helped:
        most = max(helped, key=lambda point: point.mrq.mean / point.rq.mean)
        factor = most.mrq.mean / most.rq.mean
        yield PublishedClaim(
            "MRQ's lifetime decrease is a multiple of RQ's",
            SOURCE.format("4"),
            "up to 5 times",
            f"up to {factor:.1f} times ({most.experiment}, {most.label})",
            near(factor, 5, none=1),
            band_text(),
            "the factor has no upper bound: RQ's decrease goes through zero" if factor > 5 else "",
        )
    yield from _tolerance(points)
    yield from _majorities(points)
    yield from _queue_length(points)
    yield from _tsubame(points)
    yield from _lengths_and_sizes(points)
    yield from _printed(points, printed)


def _tolerance(points: Sequence[MrqRow]) -> Iterator[PublishedClaim]:
    for experiment, section in (("intensity", "4.2"), ("tsubame", "5")):
        here = sorted((p for p in points if p.experiment == experiment), key=lambda p: p.x)
        if len(here) < 2:
            continue
        rq = _crossing([(p.x, p.rq.mean) for p in here])
        mrq = _crossing([(p.x, p.mrq.mean) for p in here])
        if rq is None:
            measured, verdict = "neither stops to pay within the range", Verdict.REFUTED
        elif mrq is None:
            factor = 10 ** (here[-1].x - rq)
            measured = f"{factor:.1f} times at least: RQ up to 10^{rq:.2f} calls, MRQ beyond 10^{here[-1].x:g}"
            verdict = at_least(factor, 10 * (1 - BAND), none=1)
        else:
            factor = 10 ** (mrq - rq)
            measured = f"{factor:.1f} times: up to 10^{mrq:.2f} calls, RQ 10^{rq:.2f}"
            verdict = near(factor, 10, none=1)
        yield PublishedClaim(
            f"MRQ tolerates more GPU communication than RQ ({experiment})",
            SOURCE.format(section),
            "10 times",
            measured,
            verdict,
            band_text(),
        )


def _majorities(points: Sequence[MrqRow]) -> Iterator[PublishedClaim]:
    here = {point.x: point for point in points if point.experiment == "gpus"}
    if len(here) == 3:
        others = max(here[1].mrq.mean, here[3].mrq.mean)
        factor = here[2].mrq.mean / others if others > 0 else math.inf
        yield PublishedClaim(
            "jobs of two GPUs gain most on nodes of three",
            SOURCE.format("4.5"),
            "more than 3 times the others' decrease",
            f"{factor:.2f} times: {here[2].mrq.mean:.1f} % against {others:.1f} % of the lifetime",
            at_least(factor, 3, none=1),
            "> 3 times",
        )


def _queue_length(points: Sequence[MrqRow]) -> Iterator[PublishedClaim]:
    here = [point for point in points if point.experiment == "queue"]
    if here:
        idle = max(here, key=lambda point: point.x)
        three = [point for point in here if point.x == 3]
        unlike = [p.x for p in here if p.x >= 3 and max(abs(p.rq.mean), abs(p.mrq.mean)) > EQUAL]
        verdict = Verdict.REPRODUCED
        if unlike:
            verdict = Verdict.REFUTED if idle.x in unlike else Verdict.DIRECTION_ONLY
        yield PublishedClaim(
            "without a queue all three are alike",
            SOURCE.format("4.6"),
            "from a mean inter-arrival time of 3 on",
            "; ".join(f"{p.label}: {p.rq.mean:.1f} and {p.mrq.mean:.1f} %" for p in [*three, idle]),
            verdict,
            f"≤ {EQUAL:g} % apart from 3 on",
            "jobs of 30 nodes and 1,000 s keep 100 nodes busy up to one every 300 s: the 3 can only be a power of ten",
        )


def _tsubame(points: Sequence[MrqRow]) -> Iterator[PublishedClaim]:
    here = [point for point in points if point.experiment == "tsubame"]
    if not here:
        return
    rq, mrq = mean(point.rq.mean for point in here), mean(point.mrq.mean for point in here)
    factor = mrq / rq if rq > 0 else math.inf
    yield PublishedClaim(
        "tsubame: MRQ shortens the lifetime more than RQ on average",
        SOURCE.format("5"),
        "2.5 times",
        f"{factor:.1f} times: {mrq:.1f} % against {rq:.1f} %, the mean of all intensities"
        if rq > 0
        else f"{mrq:.1f} % against {rq:.1f} %, the mean of all intensities",
        Verdict.DIRECTION_ONLY if rq <= 0 < mrq else near(factor, 2.5, none=1),
        band_text(),
        "the log is not public, and the mean depends on which intensities it is taken over",
    )
    rq_worse = mean(point.rq_worse for point in here)
    mrq_worse = mean(point.mrq_worse for point in here)
    yield PublishedClaim(
        "tsubame: far fewer jobs are sacrificed with MRQ",
        SOURCE.format("5"),
        "a lot fewer live longer than under FCFS",
        f"{mrq_worse:.1f} % of the jobs; with RQ {rq_worse:.1f} %",
        at_most(mrq_worse, rq_worse / 2, none=rq_worse),
        "≤ half as many",
    )


def _lengths_and_sizes(points: Sequence[MrqRow]) -> Iterator[PublishedClaim]:
    lengths = sorted((p for p in points if p.experiment == "length"), key=lambda p: p.x)
    if len(lengths) > 1:
        short, long = lengths[0], lengths[-1]
        yield PublishedClaim(
            "RQ and MRQ do badly with short jobs, RQ more so",
            SOURCE.format("4.3, figure 8"),
            "short jobs gain less; MRQ tolerates them much better",
            f"{short.label}: {short.rq.mean:.1f} and {short.mrq.mean:.1f} %; "
            f"{long.label}: {long.rq.mean:.1f} and {long.mrq.mean:.1f} %",
            Verdict.REPRODUCED
            if short.rq.mean < short.mrq.mean < long.mrq.mean
            else Verdict.REFUTED,
            "RQ < MRQ for the shortest, which gain less than the longest",
        )
    sizes = sorted((p for p in points if p.experiment == "size"), key=lambda p: p.x)
    if len(sizes) > 1:
        small, large = sizes[0], sizes[-1]
        yield PublishedClaim(
            "RQ and MRQ do better with large jobs",
            SOURCE.format("4.4, figure 9"),
            "the larger, the better",
            ", ".join(f"{p.label}: {p.rq.mean:.1f} and {p.mrq.mean:.1f} %" for p in sizes),
            Verdict.REPRODUCED
            if large.rq.mean > small.rq.mean and large.mrq.mean > small.mrq.mean
            else Verdict.REFUTED,
            "more for the largest than for the smallest",
        )


def _printed(points: Sequence[MrqRow], printed: Sequence[MrqRow]) -> Iterator[PublishedClaim]:
    ours = {(point.experiment, point.x): point for point in points}
    pairs = [
        (ours[key], point) for point in printed if (key := (point.experiment, point.x)) in ours
    ]
    if not pairs:
        return
    before, after = max(pairs, key=lambda pair: abs(pair[0].mrq.mean - pair[1].mrq.mean))
    behind = max(after.rq.mean - after.mrq.mean for _, after in pairs)
    yield PublishedClaim(
        "MRQ is never behind RQ, with both as printed: a migration fetches the data by rCUDA (equation 6), and a "
        "process that lacks a GPU uses all remotely (2014, figure 6)",
        SOURCE.format("3.1, equation 6"),
        "in every situation",
        f"at worst {max(behind, 0):.2f} % of FCFS's lifetime behind; most different from our reading at {after.label}: "
        f"MRQ {after.mrq.mean:.1f} instead of {before.mrq.mean:.1f} %, RQ {after.rq.mean:.1f} instead of "
        f"{before.rq.mean:.1f} %",
        at_most(behind, EQUAL),
        f"≤ {EQUAL:g} % of FCFS's lifetime",
    )


def _crossing(curve: Sequence[tuple[float, float]]) -> float | None:
    """Return the x at which a curve goes below zero, interpolated linearly; None if it does not."""
    for (x, y), (next_x, next_y) in pairwise(curve):
        if y >= 0 > next_y:
            return x + (next_x - x) * y / (y - next_y)
    return None


def majority(gpus: int) -> dict[int, float]:
    """Return the probabilities of GPUs per process if 80 % of the jobs have *gpus*."""
    return {count: 0.8 if count == gpus else 0.1 for count in (1, 2, 3)}


def _percent_below_zero(values: Sequence[float]) -> float:
    return 100 * sum(value < 0 for value in values) / len(values)
