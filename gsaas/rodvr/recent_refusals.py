# SPDX-License-Identifier: Apache-2.0
"""Which consumers were refused something of late: counters that grow become a problem, and stop being one. Pure.

It is state and no event: however much a VM sends that is refused, there is one problem of its port, with numbers that
grow, until nothing more was refused for `KEPT` seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gsaas.objects.refusals import Refusals

KEPT = 600.0
"""Seconds after the last refusal for which it is reported."""


class RefusalCounts(NamedTuple):
    """What the kernel has counted for one port."""

    unmapped: int = 0
    foreign: int = 0
    not_tcp: int = 0
    fragments: int = 0


@dataclass
class _Period:
    began: float
    last: float
    counts: RefusalCounts = field(default_factory=RefusalCounts)


class RecentRefusals:
    """What was refused to the ports of one endpoint. Moments are in seconds of any clock that does not go back."""

    def __init__(self, now: float) -> None:
        self._seen: dict[str, RefusalCounts] = {}
        self._looked_at = now
        self._periods: dict[str, _Period] = {}
        self._begun = False

    def begin(self, counted: Mapping[str, RefusalCounts]) -> None:
        """Take over what a former process of the endpoint has counted, of which it is not known when; once only."""
        if not self._begun:
            self._begun, self._seen = True, dict(counted)

    def look(
        self, counted: Mapping[str, RefusalCounts], now: float, *, host_is_sound: bool = True
    ) -> None:
        """Take over what is counted now, by port id; what is counted of other ports is forgotten.

        Unless *host_is_sound*, connections are not counted that were refused: a rule of the host may be the reason.
        """
        for port_id, counts in counted.items():
            grown = _growth(self._seen.get(port_id, RefusalCounts()), counts)
            if not host_is_sound:
                grown = grown._replace(unmapped=0)
            if any(grown):
                period = self._periods.setdefault(port_id, _Period(self._looked_at, now))
                period.last = now
                period.counts = RefusalCounts(*map(sum, zip(period.counts, grown, strict=True)))
        self._seen = dict(counted)
        self._looked_at = now
        self._periods = {
            port_id: period
            for port_id, period in self._periods.items()
            if port_id in counted and period.last > now - KEPT
        }

    def reports(self, strangers: Mapping[str, str], now: float) -> dict[str, Refusals]:
        """Return what was refused of late, by port id; *strangers* are foreign addresses that ports have sent from."""
        return {
            port_id: Refusals(
                seconds=max(1, round(now - period.began)),
                source=strangers.get(port_id) if period.counts.foreign else None,
                **period.counts._asdict(),
            )
            for port_id, period in self._periods.items()
        }


def _growth(before: RefusalCounts, now: RefusalCounts) -> RefusalCounts:
    """Return by how much the counters have grown; one that is smaller than before began anew."""
    return RefusalCounts(
        *(new - old if new >= old else new for old, new in zip(before, now, strict=True))
    )
