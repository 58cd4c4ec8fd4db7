# SPDX-License-Identifier: Apache-2.0
"""Comparison: the same tasks with GPUs from anywhere, under every policy of GPGPUMS, and tied to nodes with FGD.

Policies that look at the utilisation of GPUs, which the trace does not have, are left out.

Both readings of a share are run (`studies.openb.sizes`): thousandths of any GPU, and MiB as GSaaS gives them. In
thousandths, no policy can allocate everything: one task in eight asks for 810 thousandths of a GPU and leaves 190,
which hardly any other task can use, in whatever order shares are placed. `repacked` is the upper bound: there all tasks
may be moved, at any time, at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, quantiles
from typing import Any

from gsaas.sim import policies
from studies.claims import PublishedClaim, at_least
from studies.openb import cloudified, local, repacked, trace
from studies.openb.fragmentation import Fragmentation, typical_mix
from studies.openb.schedulers import SCHEDULERS
from studies.openb.sizes import MIB, THOUSANDTHS

SEEDS = range(42, 52)
SIZES = {"thousandths": THOUSANDTHS, "MiB": MIB}
AS_GIVEN = "MiB"
"""The unit in which GSaaS gives shares."""
GAIN = 1.0
"""Percentage points by which cloudified tasks are expected to allocate more than tasks tied to nodes."""
MEASURED = ("fragments", "idle_gpus", "remote_percent", "node_gbit_median", "node_gbit_max")
"""The fields of a row that not every placement has."""
REMOTE_GPU_GBIT = 5.6
"""Assumed Gbit/s of a whole remote GPU: a tenth of the 7 GB/s of a node in the MRQ paper."""


@dataclass(frozen=True)
class CloudifiedRow:
    """One placement of one workload; means over the seeds. Percentages are of all GPUs, in the unit of shares."""

    workload: str
    shares: str
    """The unit of shares: a key of `SIZES`."""
    placement: str
    """A policy of GPGPUMS, a scheduler that ties tasks to nodes, or `repacked`."""
    at_100: float
    at_130: float
    runs: tuple[float, ...] = ()
    """*at_130* of each seed."""
    fragments: float | None = None
    """Percent of all GPU thousandths that are fragments at the end."""
    idle_gpus: float | None = None
    """GPUs with no task on them at the end, although tasks were rejected."""
    remote_percent: float | None = None
    """Percent of the cGPUs that are on another node than their task."""
    node_gbit_median: float | None = None
    """Gbit/s that a node sends and receives for remote GPUs, if each moves `REMOTE_GPU_GBIT`."""
    node_gbit_max: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the benchmark prints it."""
        return asdict(self)


@dataclass(frozen=True)
class CloudifiedSetting:
    """One row to measure: the fields are those of the row, and the random orders to run."""

    workload: str
    shares: str
    placement: str
    seeds: tuple[int, ...]


def settings(
    workload: str, seeds: Sequence[int] = SEEDS, names: Sequence[str] | None = None
) -> list[CloudifiedSetting]:
    """Return the settings of one workload: every scheduler that ties tasks to nodes, every policy (or those of
    *names*), and repacked.
    """
    placements = [
        *(scheduler.name for scheduler in SCHEDULERS),
        *(policies.names() if names is None else names),
    ]
    return [
        *(
            CloudifiedSetting(workload, shares, placement, tuple(seeds))
            for shares in SIZES
            for placement in placements
        ),
        CloudifiedSetting(workload, "thousandths", "repacked", tuple(seeds)),
    ]


def measure(setting: CloudifiedSetting) -> CloudifiedRow:
    """Run one setting with every seed; return its row."""
    nodes, tasks = trace.nodes(), trace.tasks(setting.workload)
    sizes, name, seeds = SIZES[setting.shares], setting.placement, setting.seeds
    tied = {scheduler.name: scheduler for scheduler in SCHEDULERS}
    if name == "repacked":
        curves = [repacked.run(nodes, tasks, seed) for seed in seeds]
        return _local(setting, curves)
    if name in tied:
        return _local(setting, [local.run(nodes, tasks, tied[name], seed, sizes) for seed in seeds])
    outcomes = [cloudified.run(nodes, tasks, policies.load(name), seed, sizes) for seed in seeds]
    measured_in = Fragmentation(typical_mix(tasks)) if sizes is THOUSANDTHS else None
    return _cloudified(setting, outcomes, measured_in)


def merged(found: Iterable[CloudifiedRow]) -> list[CloudifiedRow]:
    """Return a row for each placement of each reading of a workload, from rows of the same with one seed each."""
    alike: dict[tuple[str, str, str], list[CloudifiedRow]] = {}
    for row in found:
        alike.setdefault((row.workload, row.shares, row.placement), []).append(row)
    return [
        CloudifiedRow(
            *place,
            mean(row.at_100 for row in here),
            mean(row.at_130 for row in here),
            tuple(run for row in here for run in row.runs),
            *(_mean_if_any(here, name) for name in MEASURED),
        )
        for place, here in alike.items()
    ]


def _mean_if_any(found: Sequence[CloudifiedRow], name: str) -> float | None:
    values = [getattr(row, name) for row in found]
    return None if None in values else mean(values)


def rows(
    workload: str,
    seeds: Sequence[int] = SEEDS,
    names: Sequence[str] | None = None,
    progress: Callable[[str], object] = str,
) -> Iterator[CloudifiedRow]:
    """Yield the rows of one workload."""
    for setting in settings(workload, seeds, names):
        progress(f"{workload} in {setting.shares}, {setting.placement}")
        yield measure(setting)


def gains(
    found: Sequence[CloudifiedRow],
) -> Iterator[tuple[str, str, CloudifiedRow, CloudifiedRow, CloudifiedRow | None]]:
    """Yield, for each reading of each workload: its name, the unit of shares, the best scheduler that ties tasks to
    nodes, the best policy, and repacked or None.
    """
    tied_names = {scheduler.name for scheduler in SCHEDULERS}
    for workload, shares in dict.fromkeys((row.workload, row.shares) for row in found):
        here = {
            row.placement: row for row in found if (row.workload, row.shares) == (workload, shares)
        }
        limit = here.pop("repacked", None)
        tied = [row for name, row in here.items() if name in tied_names]
        free = [row for name, row in here.items() if name not in tied_names]
        tied_best, free_best = (max(rows, key=lambda row: row.at_130) for rows in (tied, free))
        yield workload, shares, tied_best, free_best, limit


def claims(found: Sequence[CloudifiedRow]) -> Iterator[PublishedClaim]:
    """Yield, for each workload and unit of shares, the claim that GPUs from anywhere are used better."""
    for workload, shares, tied, best, limit in gains(found):
        gain = best.at_130 - tied.at_130
        why = ""
        if gain < GAIN and limit is not None:
            why = (
                f"shares cannot be split: even if every task could be moved at any time, "
                f"{limit.at_130:.2f} % would be allocated"
            )
        yield PublishedClaim(
            what=f"{workload}, shares in {shares}: cloudified tasks allocate more than the best tied to nodes",
            source="schedulers tied to nodes: Weng et al., ATC 2023",
            published=f"{tied.at_130:.2f} % ({tied.placement}) tied to nodes; at least {GAIN:g} point more expected",
            measured=f"{best.at_130:.2f} % ({best.placement}), {gain:+.2f} points",
            verdict=at_least(gain, GAIN),
            band=f"≥ {GAIN:g} point",
            why=why,
        )


def _local(
    setting: CloudifiedSetting, curves: Sequence[local.AllocationCurve], **more: Any
) -> CloudifiedRow:
    runs = tuple(curve.allocated_at(130) for curve in curves)
    return CloudifiedRow(
        setting.workload,
        setting.shares,
        setting.placement,
        mean(curve.allocated_at(100) for curve in curves),
        mean(runs),
        runs,
        **more,
    )


def _cloudified(
    setting: CloudifiedSetting,
    outcomes: Sequence[cloudified.CloudifiedOutcome],
    measure: Fragmentation | None,
) -> CloudifiedRow:
    traffic = [_gbit(outcome) for outcome in outcomes]
    fragments = None
    if measure is not None:
        fragments = mean(
            measure.of_node(outcome.free_cpu, outcome.free) / len(outcome.free) / trace.WHOLE * 100
            for outcome in outcomes
        )
    return _local(
        setting,
        [outcome.curve for outcome in outcomes],
        fragments=fragments,
        idle_gpus=mean(outcome.free.count(trace.WHOLE) for outcome in outcomes),
        remote_percent=mean(outcome.remote * 100 / outcome.cgpus for outcome in outcomes),
        node_gbit_median=mean(quantiles(nodes, n=2)[0] for nodes in traffic),
        node_gbit_max=mean(max(nodes) for nodes in traffic),
    )


def _gbit(outcome: cloudified.CloudifiedOutcome) -> list[float]:
    """Return the Gbit/s of each node that uses remote GPUs, or whose GPUs are used remotely."""
    milli_by_node = outcome.remote_milli + outcome.lent_milli
    return [milli / trace.WHOLE * REMOTE_GPU_GBIT for milli in milli_by_node.values()] or [0.0, 0.0]
