# SPDX-License-Identifier: Apache-2.0
"""What is left of the gain when remote GPUs are not free: lenders pay for daemons, and guests slow down.

Best fit, the best of the policies that look at GPUs alone, is compared with local-gradient, at several prices of a
remote GPU. With best fit the node of a task is the one with the least CPU left; with local-gradient it is the one that
FGD chooses, as a cloud does whose scheduler knows the GPUs of its hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.policies.local_gradient import LocalGradient
from gsaas.sim import policies
from studies.claims import PublishedClaim, Sample, Verdict, at_least, sample
from studies.document import FRONTIER
from studies.openb import cloudified, costs, trace
from studies.recipes.openb_cloudified import GAIN, SEEDS, SIZES, CloudifiedRow

PRICES = (0, 5, 100)
"""Percent of a cGPU's memory, beside the default: prices for the picture of the frontier."""
NEAR = "local-gradient"
WITHIN = 0.4
"""Percentage points of `repacked` within which local-gradient is expected where remote GPUs are free."""


@dataclass(frozen=True)
class RemoteSetting:
    """One row to measure: a placement under one cost model, and the random orders to run."""

    workload: str
    shares: str
    daemon: costs.RemoteCosts
    placement: str
    """A policy of GPGPUMS."""
    price: int | None
    """The price of a remote GPU for local-gradient, in percent; None: the policy's default."""
    seeds: tuple[int, ...]

    def policy(self) -> Policy:
        """Return the policy."""
        return policies.load(self.placement) if self.price is None else LocalGradient(self.price)


@dataclass(frozen=True)
class RemoteRow:
    """One setting, in the mean of several random orders. *at_130* is in percent of all GPUs, in the unit of shares."""

    workload: str
    shares: str
    daemon: str
    placement: str
    price: int | None
    at_130: float
    runs: tuple[float, ...]
    """*at_130* of each seed."""
    spread: float
    """Their standard deviation."""
    remote_percent: float
    """Percent of the cGPUs that are on another node than their task."""
    slowdowns: tuple[float, ...]
    """How many times as long tasks with GPUs take, the mean of all, for each of `costs.NETWORKS`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the benchmark prints it."""
        return asdict(self)


def settings(workload: str, seeds: Sequence[int] = SEEDS) -> list[RemoteSetting]:
    """Return the settings of one workload; the prices of `FRONTIER` are tried on that one only."""
    return [
        RemoteSetting(workload, shares, model, placement, price, tuple(seeds))
        for shares in SIZES
        for model in costs.MODELS
        for placement, price in [
            ("best-fit", None),
            (NEAR, None),
            *((NEAR, price) for price in PRICES if (workload, shares) == FRONTIER),
        ]
    ]


def measure(setting: RemoteSetting) -> RemoteRow:
    """Run one setting with every seed; return its row."""
    nodes, tasks = trace.nodes(), trace.tasks(setting.workload)
    outcomes = [
        cloudified.run(
            nodes,
            tasks,
            setting.policy(),
            seed,
            SIZES[setting.shares],
            setting.daemon,
            by_fgd=setting.placement == NEAR,
        )
        for seed in setting.seeds
    ]
    allocated = sample(outcomes, lambda outcome: outcome.curve.allocated_at(130))
    return RemoteRow(
        setting.workload,
        setting.shares,
        setting.daemon.name,
        setting.placement,
        setting.price,
        allocated.mean,
        allocated.values,
        allocated.spread,
        mean(100 * outcome.remote / outcome.cgpus for outcome in outcomes),
        tuple(
            mean(mean(costs.slowdowns(outcome.uses, gbit)) for outcome in outcomes)
            for gbit in costs.NETWORKS
        ),
    )


def merged(found: Iterable[RemoteRow]) -> list[RemoteRow]:
    """Return a row for each setting, from rows of the same with one seed each."""
    alike: dict[tuple[str, str, str, str, int | None], list[RemoteRow]] = {}
    for row in found:
        place = (row.workload, row.shares, row.daemon, row.placement, row.price)
        alike.setdefault(place, []).append(row)
    rows = []
    for place, here in alike.items():
        allocated = Sample(tuple(run for row in here for run in row.runs))
        rows.append(
            RemoteRow(
                *place,
                allocated.mean,
                allocated.values,
                allocated.spread,
                mean(row.remote_percent for row in here),
                tuple(map(mean, zip(*(row.slowdowns for row in here), strict=True))),
            )
        )
    return rows


def rows(
    workload: str, seeds: Sequence[int] = SEEDS, progress: Callable[[str], object] = str
) -> Iterator[RemoteRow]:
    """Yield the rows of one workload."""
    for setting in settings(workload, seeds):
        progress(f"{workload} in {setting.shares}, {setting.daemon.name}, {setting.placement}")
        yield measure(setting)


@dataclass(frozen=True)
class Margins:
    """By how many percentage points local-gradient is ahead, on one reading of one workload."""

    workload: str
    shares: str
    over_fgd: float
    """Of FGD, under the cost model where that is least."""
    worst: str
    """That cost model."""
    best_fit_over_fgd: float
    """The same of best fit, under the cost model where it is least."""
    below_repacked: float | None
    """Where remote GPUs are free: how far below `repacked` it is; None in MiB, which has no `repacked`."""
    over_tied: float
    """Where remote GPUs are free: of the best scheduler that ties tasks to nodes."""


def margins(tied: Sequence[CloudifiedRow], found: Sequence[RemoteRow]) -> Iterator[Margins]:
    """Yield the margins of each reading of each workload.

    *tied* are the rows of `openb_cloudified` of every scheduler that ties tasks to nodes, and `repacked`.
    """
    allocated: dict[tuple[str, str], dict[str, float]] = {}
    for one in tied:
        allocated.setdefault((one.workload, one.shares), {})[one.placement] = one.at_130
    for workload, shares in dict.fromkeys((row.workload, row.shares) for row in found):
        here = {
            (row.placement, row.daemon): row.at_130
            for row in found
            if (row.workload, row.shares, row.price) == (workload, shares, None)
        }
        by_name = dict(allocated[workload, shares])
        limit = by_name.pop("repacked", None)
        behind = {model.name: here[NEAR, model.name] - by_name["FGD"] for model in costs.MODELS}
        worst = min(behind, key=lambda name: behind[name])
        free = here[NEAR, costs.FREE.name]
        yield Margins(
            workload,
            shares,
            behind[worst],
            worst,
            min(here["best-fit", model.name] for model in costs.MODELS) - by_name["FGD"],
            None if limit is None else limit - free,
            free - max(by_name.values()),
        )


def claims(tied: Sequence[CloudifiedRow], found: Sequence[RemoteRow]) -> Iterator[PublishedClaim]:
    """Yield the claims about local-gradient, with what was measured."""
    source = "GPUs tied to nodes: Weng et al., ATC 2023; costs: Markthub et al., 2014 and 2016"
    for one in margins(tied, found):
        where = f"{one.workload}, shares in {one.shares}"
        yield PublishedClaim(
            f"{where}: {NEAR} allocates no less than FGD, whatever a daemon costs",
            source,
            "0 points or more expected, with 0, 0.5 and 1 core for each remote GPU",
            f"{one.over_fgd:+.2f} points at worst ({one.worst}); best-fit {one.best_fit_over_fgd:+.2f}",
            at_least(one.over_fgd, 0, none=-100),
            "≥ 0 points",
        )
        if one.below_repacked is not None:
            yield PublishedClaim(
                f"{where}: where remote GPUs are free, {NEAR} is close to moving every task at any time",
                source,
                f"at most {WITHIN:g} points less expected",
                f"{one.below_repacked:.2f} points less",
                Verdict.REPRODUCED if one.below_repacked <= WITHIN else Verdict.DIRECTION_ONLY,
                f"≤ {WITHIN:g} points",
            )
        else:
            yield PublishedClaim(
                f"{where}: where remote GPUs are free, {NEAR} is ahead of the best tied to nodes",
                source,
                f"at least {GAIN:g} point more expected",
                f"{one.over_tied:+.2f} points",
                at_least(one.over_tied, GAIN),
                f"≥ {GAIN:g} point",
            )
