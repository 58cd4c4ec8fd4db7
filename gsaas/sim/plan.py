"""How many GPUs a history needs at a level of service: tied to their hosts, and cloudified.

A level of service is a wait that so many percent of the requests do not exceed. The fewest hosts that keep it are found
by halving, as if more hosts never served anybody later. That is so in the long run, not for every single request; where
it matters by one host, look at the histories on both sides.
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
POLICIES = ("least-load-fit", "best-fit", "first-fit")
"""One that spreads, one that packs, and the plainest: what is tried unless told otherwise."""
LOCALITIES = {LOCAL: "tied to their host", ANY: "cloudified"}


class Unreachable(Exception):
    """No number of hosts of this kind keeps the level of service; says why."""


@dataclass(frozen=True)
class Service:
    """*percent* of the requests wait no longer than *wait* seconds."""

    percent: float = 95.0
    wait: float = 60.0

    def kept_by(self, outcome: Outcome) -> bool:
        waits = outcome.waits
        served = math.ceil(len(outcome.records) * self.percent / 100)
        return len(waits) >= served and (served == 0 or waits[served - 1] <= self.wait)


@dataclass(frozen=True)
class Costs:
    """What a host and a GPU cost, in whatever currency: bought, over how many years, and run for one."""

    host: float = 0.0
    gpu: float = 0.0
    years: float = 4.0
    kw_per_gpu: float = 0.7
    kw_per_host: float = 0.5
    kwh: float = 0.0

    def per_year(self, site: Site) -> float:
        gpus = site.hosts * site.gpus
        bought = (site.hosts * self.host + gpus * self.gpu) / self.years
        power = (site.hosts * self.kw_per_host + gpus * self.kw_per_gpu) * YEAR / 3600
        return bought + power * self.kwh


@dataclass(frozen=True)
class Answer:
    """The smallest site that keeps the level of service, one way."""

    locality: str
    policy: str
    site: Site
    outcome: Outcome
    cost_per_year: float

    def to_dict(self) -> dict[str, Any]:
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
    service: Service,
    *,
    policies: Sequence[str] = POLICIES,
    costs: Costs | None = None,
    progress: Callable[[str], object] = str,
) -> list[Answer]:
    """Return the smallest number of hosts like those of *site*, tied to their hosts and cloudified.

    For each way, whichever of *policies* needs fewest. Raises `Unreachable` if more requests than *service* forgives
    fit on no number of such hosts.
    """
    costs = costs or Costs()
    answers = []
    for locality in LOCALITIES:
        found = []
        for policy in policies:
            hosts, outcome = _fewest(demands, site, service, policy, locality, progress)
            size = replace(site, hosts=hosts)
            found.append(Answer(locality, policy, size, outcome, costs.per_year(size)))
        answers.append(min(found, key=lambda answer: answer.site.hosts))
    return answers


def _fewest(
    demands: Sequence[Demand],
    site: Site,
    service: Service,
    policy: str,
    locality: str,
    progress: Callable[[str], object],
) -> tuple[int, Outcome]:
    def replay(hosts: int) -> Outcome:
        progress(f"{LOCALITIES[locality]}, {policy}: {hosts} hosts")
        return Simulation(
            demands, replace(site, hosts=hosts), policy=policy, locality=locality
        ).run()

    _check_servable(demands, site, service, locality)
    too_few, enough = 0, _lower_bound(demands, site)
    while not service.kept_by(kept := replay(enough)):
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        outcome = replay(middle)
        if service.kept_by(outcome):
            enough, kept = middle, outcome
        else:
            too_few = middle
    return enough, kept


def _check_servable(demands: Sequence[Demand], site: Site, service: Service, locality: str) -> None:
    """`Unreachable` if more requests than *service* forgives fit on no number of hosts."""
    on_one_host = locality == LOCAL
    unserved = 0
    for demand in demands:
        each = site.memory_mb // (demand.memory_mb or site.memory_mb)
        unserved += not each or (on_one_host and demand.count > each * site.gpus)
    if unserved * 100 > len(demands) * (100 - service.percent):
        raise Unreachable(
            f"{unserved} of {len(demands)} requests fit on no number of hosts with {site.gpus} GPUs of "
            f"{site.memory_mb} MiB, {LOCALITIES[locality]}"
        )


def _lower_bound(demands: Sequence[Demand], site: Site) -> int:
    """Hosts that what was asked for fills all the time."""
    work = sum(
        demand.count * demand.duration * (demand.memory_mb or site.memory_mb) for demand in demands
    )
    return max(1, int(work / (span(demands) or 1.0) / (site.gpus * site.memory_mb)))
