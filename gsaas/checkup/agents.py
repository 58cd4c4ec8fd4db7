"""Are the agents of GPU hosts and compute hosts heard of, and are they content?"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from oslo_utils import timeutils
from sqlalchemy import select
from sqlalchemy.orm import Session

from gsaas.checkup.findings import Finding, ok, warn
from gsaas.db.models import EndpointRow, GpuRow, HostRow

MONITORS = "monitors"
ENDPOINTS = "endpoints"
SHOWN = 5
"""Names in one sentence."""

Heard = Mapping[str, datetime.datetime | None]
"""Host -> when its agent spoke last, in UTC; None: never."""


@dataclass(frozen=True)
class Kind:
    """Those that do the same on different hosts."""

    part: str
    where: str
    process: str
    without: str
    """What nobody has while there is none."""


_MONITOR = Kind(MONITORS, "GPU host", "gsaas-monitor", "there are no GPUs to give")
_ENDPOINT = Kind(ENDPOINTS, "compute host", "gsaas-rodvr", "no VM can reach GPUs")


def look(session: Session, monitor_patience: float, endpoint_patience: float) -> Iterator[Finding]:
    """Read what they said last. An agent is silent after so many seconds of patience."""
    now = timeutils.utcnow()
    has_gpus = select(GpuRow.uuid).where(GpuRow.host_name == HostRow.name).exists()
    monitors = session.execute(
        select(HostRow.name, HostRow.monitor_seen_at).where(has_gpus, HostRow.disabled.is_(False))
    )
    endpoints = [
        endpoint for endpoint in session.scalars(select(EndpointRow)) if not endpoint.host.disabled
    ]
    yield heard(_MONITOR, dict(monitors.all()), now, monitor_patience)
    yield heard(
        _ENDPOINT,
        {endpoint.host_name: endpoint.seen_at for endpoint in endpoints},
        now,
        endpoint_patience,
    )
    yield from troubles(
        {endpoint.host_name: endpoint.report.get("problems", []) for endpoint in endpoints}
    )


def heard(kind: Kind, last: Heard, now: datetime.datetime, patience: float) -> Finding:
    """Who of the hosts in service was not heard of lately."""
    if not last:
        return warn(
            kind.part,
            f"no {kind.process} has ever reported, so {kind.without}",
            f"start {kind.process} on a {kind.where}; if it runs, its log says what it waits for",
        )
    limit = now - datetime.timedelta(seconds=patience)
    silent = sorted(name for name, at in last.items() if at is None or at < limit)
    if silent:
        return warn(
            kind.part,
            f"{len(silent)} of {len(last)} are silent for more than {patience:.0f} s: {names(silent)}",
            f"systemctl status {kind.process} there; gsaas hosts -disable=NAME for a {kind.where} "
            "that is out of service, gsaas hosts -forget=NAME for one that is gone for good",
        )
    return ok(kind.part, f"{len(last)}, all heard of in the last {patience:.0f} s")


def troubles(problems: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """What endpoints say that somebody has to mend."""
    for host, said in sorted(problems.items()):
        for problem in said:
            yield warn(ENDPOINTS, f"{host}: {problem}", f"mend it on {host}")


def names(hosts: Sequence[str]) -> str:
    """Some of many names."""
    more = len(hosts) - SHOWN
    return ", ".join(hosts[:SHOWN]) + (f" and {more} more" if more > 0 else "")
