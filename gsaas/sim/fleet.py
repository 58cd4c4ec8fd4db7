# SPDX-License-Identifier: Apache-2.0
"""Capacity planning over mixes of hosts: the cheapest fleet that meets a level of service.

Kinds of hosts are a TOML file:

    [[host]]
    name = "h200"
    gpus = 8                            # of each host
    memory_mb = 143360                  # of each GPU
    model = "H200"                      # with capability = "9.0", if requests of the history require them
    price = 290000                      # of a host with its GPUs
    kw = 6.1                            # power that it draws (0)
    most = 12                           # hosts of this kind that may be bought (1000)

    [[host]]
    name = "l4"
    gpus = 4
    memory_mb = 24576
    price = 24000

As in `gsaas.sim.plan`, it is assumed that more hosts never make the level of service worse. That is so on average, but
not for every request.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import ge, le
from pathlib import Path
from typing import Any

from gsaas.sim import policies
from gsaas.sim.cloud import Outcome, Simulation, Site
from gsaas.sim.history import Demand, span
from gsaas.sim.plan import (
    LOCALITIES,
    POLICIES,
    YEAR,
    Impossible,
    ServiceLevel,
    check_reachable,
    refuses_too_many,
)

Counts = tuple[int, ...]
"""How many hosts of each kind."""

MOST_HOSTS = 1000
KEYS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "gpus": (int,),
    "memory_mb": (int,),
    "model": (str,),
    "capability": (str,),
    "price": (int, float),
    "kw": (int, float),
    "most": (int,),
}
"""The keys of a kind of host, with the types of their values."""
LEAST: dict[str, float] = {"gpus": 1, "memory_mb": 1, "price": 0.01, "kw": 0, "most": 1}
MOST: dict[str, float] = {
    "gpus": 1000,
    "memory_mb": 1e9,
    "price": 1e12,
    "kw": 1e6,
    "most": MOST_HOSTS,
}


class FleetError(Exception):
    """A file of kinds of hosts is invalid. The message says what is wrong and what is allowed."""


@dataclass(frozen=True)
class HostKind:
    """One kind of host that may be bought: *price* with its GPUs, in any one currency, and *kw* that it draws."""

    name: str
    gpus: int
    memory_mb: int
    price: float
    model: str = ""
    capability: str = ""
    kw: float = 0.0
    most: int = MOST_HOSTS

    def per_year(self, years: float, kwh: float) -> float:
        """Return what one host costs per year, if it is paid over *years* and a kilowatt-hour costs *kwh*."""
        return self.price / years + self.kw * YEAR / 3600 * kwh


@dataclass(frozen=True)
class CheapestFleet:
    """The cheapest fleet that meets the level of service with one locality, and the policy with which it does."""

    locality: str
    policy: str
    hosts: tuple[tuple[HostKind, int], ...]
    site: Site
    outcome: Outcome
    cost_per_year: float

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form that `gsaas-sim plan --json` prints."""
        waits = self.outcome.waits
        return {
            "locality": self.locality,
            "policy": self.policy,
            "fleet": [{"name": kind.name, "hosts": count} for kind, count in self.hosts],
            "hosts": self.site.total_hosts,
            "gpus_in_all": self.site.total_gpus,
            "refused": self.outcome.refused,
            "utilisation_percent": self.outcome.utilisation,
            "mean_wait_seconds": sum(waits) / len(waits) if waits else 0.0,
            "cost_per_year": self.cost_per_year,
            "impossible": None,
        }


def read(path: Path) -> tuple[HostKind, ...]:
    """Return the kinds of hosts in a TOML file. Raises `FleetError` if it cannot be read or is invalid."""
    try:
        document = tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise FleetError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FleetError(f"{path} is not valid TOML: {error}") from error
    tables = document.pop("host", None)
    if document or not isinstance(tables, list) or not tables:
        raise FleetError(f"{path} has to have [[host]] tables and nothing else")
    kinds = tuple(_kind(f"{path}: [[host]] {number}", one) for number, one in enumerate(tables, 1))
    names = [kind.name for kind in kinds]
    if len(set(names)) < len(names):
        raise FleetError(f"{path}: two kinds of hosts have the same name")
    return kinds


def _kind(where: str, table: Any) -> HostKind:
    if not isinstance(table, dict):
        raise FleetError(f"{where} is not a table")
    for name, value in table.items():
        if name not in KEYS:
            raise FleetError(f"{where} has no {name!r}; it may have {', '.join(KEYS)}")
        # In Python a bool is an int as well; `gpus = true` is a mistake all the same.
        if not isinstance(value, KEYS[name]) or isinstance(value, bool):
            raise FleetError(f"{where}: {name} is not of type {KEYS[name][-1].__name__}: {value!r}")
        if isinstance(value, int | float) and not LEAST[name] <= value <= MOST[name]:
            raise FleetError(
                f"{where}: {name} is a number from {LEAST[name]:g} to {MOST[name]:g}, not {value:g}"
            )
    needed = ("name", "gpus", "memory_mb", "price")
    if missing := [name for name in needed if name not in table]:
        raise FleetError(f"{where} needs {', '.join(missing)}")
    return HostKind(**table)


def site(kinds: Sequence[HostKind], counts: Counts) -> Site:
    """Return the site with so many hosts of each kind, of which there has to be one."""
    parts = [
        Site(count, kind.gpus, kind.memory_mb, kind.model, kind.capability)
        for kind, count in zip(kinds, counts, strict=True)
        if count
    ]
    return replace(parts[0], beside=tuple(parts[1:]))


def plan(
    demands: Sequence[Demand],
    kinds: Sequence[HostKind],
    level: ServiceLevel,
    *,
    policy_names: Sequence[str] = POLICIES,
    years: float = 4.0,
    kwh: float = 0.0,
    progress: Callable[[str], object] = str,
    percent: Callable[[int], object] | None = None,
) -> list[CheapestFleet | Impossible]:
    """Return, for each of `LOCALITIES`, the cheapest fleet of *kinds* that meets *level* under one of the policies.

    *progress* is called with a line of text before each run, and *percent* with how much of it is done. Raises
    `Unreachable` if no fleet meets it with any locality, and what `policies.load` raises for the name of a policy.
    """
    for name in policy_names:
        policies.load(name)
    prices = [kind.per_year(years, kwh) for kind in kinds]
    most = tuple(kind.most for kind in kinds)
    every_host = site(kinds, most)
    found: list[CheapestFleet | Impossible] = []
    for locality in LOCALITIES:
        refused = unserved(demands, every_host, locality)
        if not level.allows(refused, len(demands)):
            found.append(refuses_too_many(locality, refused, len(demands)))
            continue
        best: CheapestFleet | None = None
        for policy in policy_names:
            replay = _Replay(demands, kinds, level, policy, locality, progress, percent)
            below = None if best is None else best.cost_per_year
            counts = cheapest(prices, most, replay.is_enough, below)
            if counts is not None:
                hosts = tuple(zip(kinds, counts, strict=True))
                cost = sum(price * count for price, count in zip(prices, counts, strict=True))
                best = CheapestFleet(
                    locality, policy, hosts, site(kinds, counts), replay.outcomes[counts], cost
                )
        found.append(
            best or Impossible(locality, refused, "the hosts that may be bought are too few")
        )
    check_reachable(found)
    return found


def unserved(demands: Sequence[Demand], here: Site, locality: str) -> int:
    """Return how many of the *demands* fit nowhere on a site, even if it is empty."""
    fits = cache(here.fits)
    requests = (here.request(demand, locality) for demand in demands)
    return sum(request is None or not fits(request) for request in requests)


class _Replay:
    """Runs the history on fleets, with one policy and locality."""

    def __init__(
        self,
        demands: Sequence[Demand],
        kinds: Sequence[HostKind],
        level: ServiceLevel,
        policy: str,
        locality: str,
        progress: Callable[[str], object],
        percent: Callable[[int], object] | None,
    ) -> None:
        self._demands, self._kinds, self._level = demands, kinds, level
        self._policy, self._locality = policy, locality
        self._progress, self._percent = progress, percent
        self._seconds = span(demands) or 1.0
        self.outcomes: dict[Counts, Outcome] = {}
        """The runs that met the level."""

    def is_enough(self, counts: Counts) -> bool:
        """Return whether the fleet meets the level of service."""
        if not any(counts):
            return False
        here = site(self._kinds, counts)
        if not self._may_be_enough(here):
            return False
        named = (
            f"{count} {kind.name}" for kind, count in zip(self._kinds, counts, strict=True) if count
        )
        self._progress(f"{LOCALITIES[self._locality]}, {self._policy}: {' + '.join(named)}")
        outcome = Simulation(
            self._demands,
            here,
            policy=self._policy,
            locality=self._locality,
            progress=self._percent,
        ).run()
        if self._level.is_met_by(outcome):
            self.outcomes[counts] = outcome
            return True
        return False

    def _may_be_enough(self, here: Site) -> bool:
        """Return whether *here* refuses no more requests than the level allows, without running them."""
        return self._level.allows(unserved(self._demands, here, self._locality), len(self._demands))


def cheapest(
    prices: Sequence[float],
    most: Counts,
    is_enough: Callable[[Counts], bool],
    below: float | None = None,
) -> Counts | None:
    """Return the cheapest counts, each at most that in *most*, that are enough; of equally cheap ones the first found.

    *is_enough* is assumed to stay true with more of anything; it is asked as rarely as that allows. With *below*, only
    counts that cost less are looked for. Returns None if there are none.
    """
    known = _Known(is_enough)

    def cost(counts: Counts) -> float:
        return sum(price * count for price, count in zip(prices, counts, strict=True))

    best: Counts | None = None
    limit = below
    # Begin with equally many of each kind: with the cost of that, most other mixes need not be tried.
    equal = _least(lambda number: known(tuple(min(number, bound) for bound in most)), 0, max(most))
    if equal is None:
        return None
    begin = tuple(min(equal, bound) for bound in most)
    if limit is None or cost(begin) < limit:
        best, limit = begin, cost(begin)

    def search(first: Counts) -> None:
        nonlocal best, limit
        place = len(first)
        spent = cost((*first, *(0 for _ in most[place:])))
        room = int((limit - spent) / prices[place]) if limit is not None else most[place]
        room = min(room, most[place])
        if room < 0:
            return
        if place == len(most) - 1:
            # Most mixes that are not too expensive are too small: that is known after one question.
            if known((*first, room)):
                number = bisect_left(range(room), True, key=lambda count: known((*first, count)))
                if limit is None or cost((*first, number)) < limit:
                    best, limit = (*first, number), cost((*first, number))
            return
        for number in range(room + 1):
            if limit is None or spent + number * prices[place] < limit:
                search((*first, number))

    search(())
    return best


class _Known:
    """Caches the answers of a function that, once true, stays true with more of anything: what follows is not asked."""

    def __init__(self, function: Callable[[Counts], bool]) -> None:
        self._function = function
        self._enough: list[Counts] = []
        self._short: list[Counts] = []

    def __call__(self, counts: Counts) -> bool:
        if any(all(map(ge, counts, other)) for other in self._enough):
            return True
        if any(all(map(le, counts, other)) for other in self._short):
            return False
        enough = self._function(counts)
        (self._enough if enough else self._short).append(counts)
        return enough


def _least(holds: Callable[[int], bool], least: int, most: int) -> int | None:
    """Return the smallest number from *least* to *most* for which *holds* is true, as it is for all larger ones.

    Returns None if there is none. Small numbers are tried first: what is asked costs more for large ones.
    """
    step, last = 1, least - 1
    while True:
        reached = min(last + step, most)
        if holds(reached):
            break
        if reached == most:
            return None
        last, step = reached, 2 * step
    while reached - last > 1:
        middle = (reached + last) // 2
        if holds(middle):
            reached = middle
        else:
            last = middle
    return reached
