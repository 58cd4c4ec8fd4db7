# SPDX-License-Identifier: Apache-2.0
"""Capacity planning: the fewest hosts that meet a level of service, with GPUs tied to their hosts and cloudified.

A level of service is a wait that a given percentage of the requests does not exceed. The smallest number of hosts that
meets it is found by bisection, which assumes that more hosts never make the level worse. That is so on average, but
not for every request: where one host matters, run the history with one host more and one host less as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gsaas.objects.request import ANY, LOCAL
from gsaas.sim.cloud import Outcome, Simulation, Site
from gsaas.sim.history import Demand, span

YEAR = 365 * 86_400.0
"""Seconds."""
POLICIES = ("least-load-fit", "best-fit", "first-fit")
"""The policies that are tried by default: one that spreads, one that packs, and the simplest one."""
LOCALITIES = {LOCAL: "tied to their host", ANY: "cloudified"}
"""The localities that are compared, with their names in tables."""


class Unreachable(Exception):
    """No number of hosts of this kind meets the level of service. The message says why."""


@dataclass(frozen=True)
class ServiceLevel:
    """*percent* percent of the requests wait no longer than *wait* seconds."""

    percent: float = 95.0
    wait: float = 60.0

    def is_met_by(self, outcome: Outcome) -> bool:
        """Return whether enough requests of a run waited no longer than allowed. Refused requests did not."""
        waits = outcome.waits
        served = math.ceil(len(outcome.records) * self.percent / 100)
        return len(waits) >= served and (served == 0 or waits[served - 1] <= self.wait)


@dataclass(frozen=True)
class Costs:
    """Prices, in any one currency: *host* without GPUs, *gpu*, paid over *years* years, and *kwh* per kilowatt-hour."""

    host: float = 0.0
    gpu: float = 0.0
    years: float = 4.0
    kw_per_gpu: float = 0.7
    kw_per_host: float = 0.5
    kwh: float = 0.0

    def per_year(self, site: Site) -> float:
        """Return what *site* costs per year: its share of the purchase, and its power."""
        gpus = site.hosts * site.gpus
        bought = (site.hosts * self.host + gpus * self.gpu) / self.years
        power = (site.hosts * self.kw_per_host + gpus * self.kw_per_gpu) * YEAR / 3600
        return bought + power * self.kwh


@dataclass(frozen=True)
class SmallestSite:
    """The smallest site that meets the level of service with one locality, and the policy that needs so few hosts."""

    locality: str
    policy: str
    site: Site
    outcome: Outcome
    cost_per_year: float

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form that `gsaas-sim plan --json` prints."""
        waits = self.outcome.waits
        return {
            "locality": self.locality,
            "policy": self.policy,
            **asdict(self.site),
            "gpus_in_all": self.site.hosts * self.site.gpus,
            "utilisation_percent": self.outcome.utilisation,
            "mean_wait_seconds": sum(waits) / len(waits) if waits else 0.0,
            "cost_per_year": self.cost_per_year,
        }


def plan(
    demands: Sequence[Demand],
    site: Site,
    level: ServiceLevel,
    *,
    policies: Sequence[str] = POLICIES,
    costs: Costs | None = None,
    progress: Callable[[str], object] = str,
    percent: Callable[[int], object] | None = None,
) -> list[SmallestSite]:
    """Return, for each of `LOCALITIES`, the smallest site of hosts like those of *site* that meets *level*.

    Of several *policies* the one that needs the fewest hosts is returned. *progress* is called with a line of text
    before each run, and *percent* with how much of it is done; the defaults do nothing. Raises `Unreachable` if more
    requests than *level* allows fit on no number of such hosts.
    """
    costs = costs or Costs()
    smallest = []
    for locality in LOCALITIES:
        found = []
        for policy in policies:
            hosts, outcome = _fewest_hosts(
                demands, site, level, policy, locality, progress, percent
            )
            size = replace(site, hosts=hosts)
            found.append(SmallestSite(locality, policy, size, outcome, costs.per_year(size)))
        smallest.append(min(found, key=lambda candidate: candidate.site.hosts))
    return smallest


def _fewest_hosts(
    demands: Sequence[Demand],
    site: Site,
    level: ServiceLevel,
    policy: str,
    locality: str,
    progress: Callable[[str], object],
    percent: Callable[[int], object] | None,
) -> tuple[int, Outcome]:
    """Return the fewest hosts that meet *level* with one policy and locality, and the run on them."""

    def replay(hosts: int) -> Outcome:
        progress(f"{LOCALITIES[locality]}, {policy}: {hosts} hosts")
        return Simulation(
            demands,
            replace(site, hosts=hosts),
            policy=policy,
            locality=locality,
            progress=percent,
        ).run()

    _check_servable(demands, site, level, locality)
    # Double until the level is met, then bisect between the last number that was too small and that one.
    too_few, enough = 0, _lower_bound(demands, site)
    while not level.is_met_by(best := replay(enough)):
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        outcome = replay(middle)
        if level.is_met_by(outcome):
            enough, best = middle, outcome
        else:
            too_few = middle
    return enough, best


def _check_servable(
    demands: Sequence[Demand], site: Site, level: ServiceLevel, locality: str
) -> None:
    """Raise `Unreachable` if more requests than *level* allows to wait longer fit on no number of hosts."""
    unserved = sum(site.request(demand, locality) is None for demand in demands)
    if unserved * 100 > len(demands) * (100 - level.percent):
        raise Unreachable(
            f"{unserved} of {len(demands)} requests fit on no number of hosts with {site.gpus} GPUs of "
            f"{site.memory_mb} MiB, {LOCALITIES[locality]}"
        )


def _lower_bound(demands: Sequence[Demand], site: Site) -> int:
    """Return the number of hosts that the history would fill without a gap; fewer hosts are never enough."""
    work = sum(
        demand.count * demand.duration * (demand.memory_mb or site.memory_mb) for demand in demands
    )
    return max(1, int(work / (span(demands) or 1.0) / (site.gpus * site.memory_mb)))
