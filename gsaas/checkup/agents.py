# SPDX-License-Identifier: Apache-2.0
"""Check that the agents of GPU hosts and compute hosts report, and that they report no problem."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from gsaas.checkup.findings import Finding, ok, warn
from gsaas.db import clock, hosts
from gsaas.db.models import EndpointRow, GpuRow, HostRow

MONITORS = "monitors"
ENDPOINTS = "endpoints"
MAX_NAMES = 5
"""Host names that one sentence lists."""

LastReports = Mapping[str, datetime.datetime | None]
"""Host -> when its agent reported last, in UTC without a time zone; None: never."""


@dataclass(frozen=True)
class AgentKind:
    """One of the two kinds of agents, in the words of the sentences about it."""

    part: str
    """The part of the check-up, in the plural: `monitors`."""
    host_kind: str
    """The kind of host that it runs on: `GPU host`."""
    process: str
    """The name of its process."""
    consequence: str
    """What does not work while there is none."""


_MONITOR = AgentKind(MONITORS, "GPU host", "gsaas-monitor", "there are no GPUs to offer")
_ENDPOINT = AgentKind(ENDPOINTS, "compute host", "gsaas-rodvr", "no VM can reach GPUs")


def check(session: Session, monitor_timeout: float, endpoint_timeout: float) -> Iterator[Finding]:
    """Check the last reports in the database; the timeouts say after how many seconds an agent counts as silent."""
    now = clock.now(session.connection())
    has_gpus = select(GpuRow.uuid).where(GpuRow.host_name == HostRow.name).exists()
    monitors = session.execute(
        select(HostRow.name, HostRow.monitor_seen_at).where(has_gpus, HostRow.disabled.is_(False))
    )
    seen = {row.name: row.monitor_seen_at for row in monitors}
    endpoints = [
        endpoint for endpoint in session.scalars(select(EndpointRow)) if not endpoint.host.disabled
    ]
    yield check_last_reports(_MONITOR, seen, now, monitor_timeout)
    yield check_last_reports(
        _ENDPOINT,
        {endpoint.host_name: endpoint.seen_at for endpoint in endpoints},
        now,
        endpoint_timeout,
    )
    with_problems = session.execute(
        select(HostRow.name, HostRow.monitor_problems, HostRow.monitor_report).where(
            HostRow.disabled.is_(False)
        )
    )
    yield from list_problems(
        MONITORS,
        {
            host.name: hosts.problems(host.monitor_problems, host.monitor_report)
            for host in with_problems
        },
    )
    yield from list_problems(
        ENDPOINTS,
        {endpoint.host_name: endpoint.report.get("problems", []) for endpoint in endpoints},
    )


def check_last_reports(
    kind: AgentKind, last: LastReports, now: datetime.datetime, timeout: float
) -> Finding:
    """Name the hosts whose agents have not reported within the last *timeout* seconds."""
    if not last:
        return warn(
            kind.part,
            f"no {kind.process} has ever reported, so {kind.consequence}",
            f"start {kind.process} on a {kind.host_kind}; if it runs, its log says what it waits for",
        )
    limit = now - datetime.timedelta(seconds=timeout)
    silent = sorted(name for name, at in last.items() if at is None or at < limit)
    if silent:
        return warn(
            kind.part,
            f"{len(silent)} of {len(last)} are silent for more than {timeout:.0f} s: {names(silent)}",
            f"systemctl status {kind.process} there; gsaas hosts -disable=NAME for a {kind.host_kind} "
            "that is out of service, gsaas hosts -forget=NAME for one that is gone for good",
        )
    return ok(kind.part, f"{len(last)}, all have reported in the last {timeout:.0f} s")


def list_problems(part: str, problems: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Yield a finding for each of the *problems* of agents, by host; *part* names the kind of agents."""
    for host, reported in sorted(problems.items()):
        for problem in reported:
            yield warn(part, f"{host}: {problem}", f"repair it on {host}")


def names(hosts: Sequence[str]) -> str:
    """Return the first `MAX_NAMES` of *hosts* and the number of the others, for a sentence."""
    more = len(hosts) - MAX_NAMES
    return ", ".join(hosts[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
