"""The same tasks with GPUs from anywhere, under every policy of GPGPUMS, beside the best scheduler tied to nodes.

Both readings of a share are tried (`sizes`): thousandths of whichever GPU, and MiB as GSaaS sells them. In thousandths,
what remains free at the end is not the policies' doing: one task in eight asks for 810 of a GPU and leaves 190 that
hardly any other task can use; no order in which such shares are placed gains them back. `repacked` tells how far it
could be driven: it may move everything, at any time, at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, quantiles
from typing import Any

from gsaas.gpgpums import policies
from studies.claims import Claim
from studies.openb import cloudified, local, repacked, trace
from studies.openb.fragmentation import Fragmentation, typical
from studies.openb.schedulers import Fgd
from studies.openb.sizes import MIB, THOUSANDTHS

SEEDS = range(42, 45)
SIZES = {"thousandths": THOUSANDTHS, "MiB": MIB}
GAIN = 1.0
"""Percentage points by which cloudified tasks are to beat FGD."""
REMOTE_GPU_GBIT = 5.6
"""Gbit/s that a whole remote GPU moves: a tenth of the 7 GB/s that a node of the MRQ paper has."""


@dataclass(frozen=True)
class Row:
    """One way to place one workload; means over the seeds. Percentages are of all GPUs, in the unit of shares."""

    workload: str
    shares: str
    """In what shares are counted: a key of `SIZES`."""
    placement: str
    """A policy of GPGPUMS, `FGD` for tasks tied to nodes, or `repacked`."""
    at_100: float
    at_130: float
    fragments: float | None = None
    idle_gpus: float | None = None
    """With nothing on them at the end, while tasks were turned away."""
    remote_percent: float | None = None
    """Of the cGPUs, those on another node than their task."""
    node_gbit_median: float | None = None
    """Gbit/s that a node sends and receives for remote GPUs, if each moves `REMOTE_GPU_GBIT`."""
    node_gbit_max: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def rows(
    workload: str,
    seeds: Sequence[int] = SEEDS,
    names: Sequence[str] | None = None,
    progress: Callable[[str], object] = str,
) -> Iterator[Row]:
    """Yield FGD, every policy (or those of *names*), and what repacking could reach, for one workload."""
    nodes, tasks = trace.nodes(), trace.tasks(workload)
    for shares, sizes in SIZES.items():
        progress(f"{workload} in {shares}, FGD")
        curves = [local.run(nodes, tasks, Fgd, seed, sizes) for seed in seeds]
        yield _local(workload, shares, curves, "FGD")
        for name in policies.names() if names is None else names:
            progress(f"{workload} in {shares}, {name}")
            policy = policies.load(name)
            yield _cloudified(
                workload,
                shares,
                name,
                [cloudified.run(nodes, tasks, policy, seed, sizes) for seed in seeds],
                Fragmentation(typical(tasks)) if sizes is THOUSANDTHS else None,
            )
    progress(f"{workload}, repacked")
    curves = [repacked.run(nodes, tasks, seed) for seed in seeds]
    yield _local(workload, "thousandths", curves, "repacked")


def gains(found: Sequence[Row]) -> Iterator[tuple[str, str, Row, Row, Row | None]]:
    """Yield (workload, shares, FGD, the best policy, repacked or None) for each reading of each workload."""
    for workload, shares in dict.fromkeys((row.workload, row.shares) for row in found):
        here = {
            row.placement: row for row in found if (row.workload, row.shares) == (workload, shares)
        }
        fgd, limit = here.pop("FGD"), here.pop("repacked", None)
        yield workload, shares, fgd, max(here.values(), key=lambda row: row.at_130), limit


def claims(found: Sequence[Row]) -> Iterator[Claim]:
    """Yield what the rows of some workloads say of the claim that GPUs from anywhere are used better."""
    for workload, shares, fgd, best, limit in gains(found):
        gain = best.at_130 - fgd.at_130
        why = ""
        if gain < GAIN and limit is not None:
            why = (
                f"shares cannot be split: even who may move every task at any time reaches "
                f"{limit.at_130:.2f} %"
            )
        yield Claim(
            what=f"{workload}, shares in {shares}: cloudified tasks allocate more than the best tied to nodes",
            source="FGD: Weng et al., ATC 2023",
            published=f"{fgd.at_130:.2f} % tied to nodes; at least {GAIN:g} point more expected",
            measured=f"{best.at_130:.2f} % ({best.placement}), {gain:+.2f} points",
            holds=gain >= GAIN,
            why=why,
        )


def _local(workload: str, shares: str, curves: Sequence[local.Curve], name: str) -> Row:
    allocated = (mean(curve.at(load) for curve in curves) for load in (100, 130))
    return Row(workload, shares, name, *allocated)


def _cloudified(
    workload: str,
    shares: str,
    name: str,
    outcomes: Sequence[cloudified.Outcome],
    measure: Fragmentation | None,
) -> Row:
    traffic = [_gbit(outcome) for outcome in outcomes]
    fragments = None
    if measure is not None:
        fragments = mean(
            measure.of(outcome.free_cpu, outcome.free) / len(outcome.free) / trace.WHOLE * 100
            for outcome in outcomes
        )
    return Row(
        workload,
        shares,
        name,
        *(mean(outcome.curve.at(load) for outcome in outcomes) for load in (100, 130)),
        fragments=fragments,
        idle_gpus=mean(outcome.free.count(trace.WHOLE) for outcome in outcomes),
        remote_percent=mean(outcome.remote * 100 / outcome.cgpus for outcome in outcomes),
        node_gbit_median=mean(quantiles(nodes, n=2)[0] for nodes in traffic),
        node_gbit_max=mean(max(nodes) for nodes in traffic),
    )


def _gbit(outcome: cloudified.Outcome) -> list[float]:
    """Gbit/s of each node that lends or borrows."""
    moved = outcome.remote_milli + outcome.lent_milli
    return [milli / trace.WHOLE * REMOTE_GPU_GBIT for milli in moved.values()] or [0.0, 0.0]
