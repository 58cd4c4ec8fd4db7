# SPDX-License-Identifier: Apache-2.0
"""Capacity planning: the fewest hosts that meet a level of service, with GPUs tied to their hosts and cloudified.

A level of service is a wait that a given percentage of the requests does not exceed, and how many requests may be
refused. A request is refused if it fits on no number of hosts. So GPUs that are tied to their hosts may meet no level
that the same hosts, cloudified, meet; and the two are compared only where they do the same work.

The smallest number of hosts that meets the level is found by bisection, which assumes that more hosts never make it
worse. That is so on average, but not for every request: where one host matters, run the history with one host more and
one host less as well.
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
    """No cloud of these hosts meets the level of service, tied or cloudified. The message says why."""


@dataclass(frozen=True)
class ServiceLevel:
    """*percent* percent of the served requests wait no longer than *wait* seconds, *refused* percent are not served."""

    percent: float = 95.0
    wait: float = 60.0
    refused: float = 0.0

    def allows(self, refused: int, requests: int) -> bool:
        """Return whether so many of so many requests may be refused."""
        return refused * 100 <= requests * self.refused

    def is_met_by(self, outcome: Outcome) -> bool:
        """Return whether a run refused no more requests than allowed, and enough of the others waited no longer."""
        waits = outcome.waits
        in_time = math.ceil(len(waits) * self.percent / 100)
        return self.allows(outcome.refused, len(outcome.records)) and (
            in_time == 0 or waits[in_time - 1] <= self.wait
        )


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
            "refused": self.outcome.refused,
            "utilisation_percent": self.outcome.utilisation,
            "mean_wait_seconds": sum(waits) / len(waits) if waits else 0.0,
            "cost_per_year": self.cost_per_year,
            "impossible": None,
        }


@dataclass(frozen=True)
class Impossible:
    """The level of service is met at no size with one locality. *refused* requests fit on no number of these hosts."""

    locality: str
    refused: int
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form that `gsaas-sim plan --json` prints: as for a site, with null for what there is not."""
        return {
            "locality": self.locality,
            "policy": None,
            "fleet": None,
            "hosts": None,
            "gpus_in_all": None,
            "refused": self.refused,
            "utilisation_percent": None,
            "mean_wait_seconds": None,
            "cost_per_year": None,
            "impossible": self.reason,
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
) -> list[SmallestSite | Impossible]:
    """Return, for each of `LOCALITIES`, the smallest site of hosts like those of *site* that meets *level*, if any.

    Of several *policies* the one that needs the fewest hosts is returned. *progress* is called with a line of text
    before each run, and *percent* with how much of it is done; the defaults do nothing. Raises `Unreachable` if no site
    meets the level with any locality.
    """
    costs = costs or Costs()
    smallest: list[SmallestSite | Impossible] = []
    for locality in LOCALITIES:
        refused = sum(site.request(demand, locality) is None for demand in demands)
        if not level.allows(refused, len(demands)):
            smallest.append(refuses_too_many(locality, refused, len(demands)))
            continue
        found = []
        for policy in policies:
            hosts, outcome = _fewest_hosts(
                demands, site, level, policy, locality, progress, percent
            )
            size = replace(site, hosts=hosts)
            found.append(SmallestSite(locality, policy, size, outcome, costs.per_year(size)))
        smallest.append(min(found, key=lambda candidate: candidate.site.hosts))
    check_reachable(smallest)
    return smallest


def refuses_too_many(locality: str, refused: int, requests: int) -> Impossible:
    """Return that hosts on which so many requests never fit do not meet a level of service."""
    return Impossible(
        locality, refused, f"{refused} of {requests} requests fit on no number of such hosts"
    )


def check_reachable(answers: Sequence[object]) -> None:
    """Raise `Unreachable` if all *answers* are impossible."""
    impossible = [answer for answer in answers if isinstance(answer, Impossible)]
    if len(impossible) == len(answers):
        fewest = min(impossible, key=lambda answer: answer.refused)
        hint = "; --refused=PERCENT plans without them" if fewest.refused else ""
        raise Unreachable(
            f"impossible at any size, {LOCALITIES[fewest.locality]}: {fewest.reason}{hint}"
        )


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


def _lower_bound(demands: Sequence[Demand], site: Site) -> int:
    """Return the number of hosts that the history would fill without a gap; fewer hosts are never enough."""
    work = sum(
        demand.count * demand.duration * (demand.memory_mb or site.memory_mb) for demand in demands
    )
    return max(1, int(work / (span(demands) or 1.0) / (site.gpus * site.memory_mb)))
