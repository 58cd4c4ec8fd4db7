# SPDX-License-Identifier: Apache-2.0
"""Asks the cloud, the agents and, last, the database. Changes nothing.

In this order, because whoever makes something outside the database records it there first: what the database does not
contain then was nobody's before. Agents are asked side by side, and each that does not answer costs what it would have
told, and the timeout of one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy import select

from gsaas import exceptions
from gsaas.cloud.base import Cloud, ListedServer
from gsaas.db import clock, endpoints, orphans, recount
from gsaas.db.database import Database
from gsaas.db.models import EndpointRow, HostRow
from gsaas.engine import host_reports
from gsaas.engine.agents import Agents
from gsaas.objects.endpoint_audit import EndpointAudit
from gsaas.rpc.hosts import AgentCallFailed
from gsaas.verify.facts import Facts, NotAsked, Stored

AT_ONCE = 32
"""Agents that are asked at the same time."""

T = TypeVar("T")


def gather(database: Database, cloud: Cloud, agents: Agents | None) -> Facts:
    """Return what everybody says; without *agents*, what the others say."""
    with database.read() as session:
        monitored = session.scalars(
            select(HostRow.name).where(
                HostRow.monitor_report.is_not(None), HostRow.forgotten.is_(False)
            )
        ).all()
        equipped = session.scalars(select(EndpointRow.host_name)).all()
    servers, no_cloud = _servers(cloud)
    if agents is None:
        return Facts(_stored(database, _named(servers, {})), servers, not_asked=tuple(no_cloud))
    audits, no_endpoints = _ask("endpoint", equipped, agents.endpoint.audit)
    monitors = agents.monitors
    reports, no_monitors = _ask(
        "monitor", monitored, lambda host: _report(monitors.audit(host), host)
    )
    stored = _stored(database, _named(servers, audits))
    return Facts(stored, servers, audits, reports, (*no_cloud, *no_endpoints, *no_monitors))


def _servers(cloud: Cloud) -> tuple[Mapping[str, ListedServer] | None, list[NotAsked]]:
    try:
        found = cloud.list_servers()
        return None if found is None else {one.id: one for one in found}, []
    except exceptions.CloudUnavailable as error:
        return None, [NotAsked("the cloud", str(error))]


def _ask(
    agent: str, hosts: Iterable[str], ask: Callable[[str], T]
) -> tuple[dict[str, T], list[NotAsked]]:
    """Ask the *agent* of each host; return the answers by host, and who did not answer."""
    told: dict[str, T] = {}
    silent: list[NotAsked] = []

    def one(host: str) -> None:
        try:
            told[host] = ask(host)
        except AgentCallFailed as error:
            silent.append(NotAsked(f"the {agent} of {host}", str(error)))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, hosts))
    return told, sorted(silent, key=lambda each: each.who)


def _report(answer: Any, host: str) -> dict[str, Any]:
    try:
        return host_reports.gpu_host_report(answer)
    except ValueError as error:
        raise AgentCallFailed(f"the monitor of {host} sent no valid report: {error}") from error


def _named(
    servers: Mapping[str, ListedServer] | None, audits: Mapping[str, EndpointAudit]
) -> set[str]:
    """Return the leases that servers and endpoints name."""
    tagged = {lease_id for one in (servers or {}).values() for lease_id in one.lease_ids}
    return tagged | {binding.lease_id for audit in audits.values() for binding in audit.bindings}


def _stored(database: Database, named: set[str]) -> Stored:
    with database.read() as session:
        connection = session.connection()
        found = {one.id: one for one in orphans.stored(connection)}
        miscounted = recount.miscounted(connection)
        hosts = {one.bound_host for one in found.values() if one.bound_host is not None}
        return Stored(
            now=clock.now(connection),
            leases=found,
            named=orphans.named(connection, named - found.keys()),
            endpoints=frozenset(session.scalars(select(EndpointRow.host_name))),
            addresses=endpoints.gpu_addresses(session, hosts) if hosts else {},
            miscounted={one.uuid: str(one) for one in miscounted},
            over_committed=frozenset(one.uuid for one in miscounted if one.is_over_committed),
            orphaned_claims=orphans.claims(connection),
            orphaned_shares=orphans.shares(connection),
        )
