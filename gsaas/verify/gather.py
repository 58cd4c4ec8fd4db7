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
from gsaas.engine.reconciler import owner_of
from gsaas.objects.endpoint_audit import EndpointAudit
from gsaas.objects.lifecycle import Status
from gsaas.rpc.hosts import AgentCallFailed
from gsaas.verify.facts import Facts, NotAsked, Stored

AT_ONCE = 32
"""Agents that are asked at the same time."""
CLOUD = "the cloud"

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
        stored = _stored(database, _named(servers, {}))
        gone, no_server = _gone(cloud, servers, stored)
        return Facts(stored, servers, gone, not_asked=(*no_cloud, *no_server))
    audits, no_endpoints = _ask("endpoint", equipped, agents.endpoint.audit)
    monitors = agents.monitors
    reports, no_monitors = _ask(
        "monitor", monitored, lambda host: _report(monitors.audit(host), host)
    )
    stored = _stored(database, _named(servers, audits))
    gone, no_server = _gone(cloud, servers, stored)
    silent = (*no_cloud, *no_server, *no_endpoints, *no_monitors)
    return Facts(stored, servers, gone, audits, reports, silent)


def _servers(cloud: Cloud) -> tuple[Mapping[str, ListedServer] | None, list[NotAsked]]:
    try:
        found = cloud.list_servers()
        return None if found is None else {one.id: one for one in found}, []
    except exceptions.CloudUnavailable as error:
        return None, [NotAsked(CLOUD, str(error))]


def _gone(
    cloud: Cloud, servers: Mapping[str, ListedServer] | None, stored: Stored
) -> tuple[frozenset[str], list[NotAsked]]:
    """Return the leases whose servers are not among *servers*, and which the cloud, asked for each, does not know.

    A list may lack servers that the cloud cannot reach: Nova leaves out those of a cell whose database does not answer.
    After the first one of them no more are asked for, as each answer takes Nova a minute.
    """
    gone: set[str] = set()
    if servers is None:
        return frozenset(), []
    for lease in stored.leases.values():
        if lease.status != Status.ACTIVE or not lease.has_server or lease.server_id in servers:
            continue
        try:
            if cloud.find(owner_of(lease)) is None:
                gone.add(lease.id)
        except exceptions.CloudUnavailable as error:
            why = f"it did not list server {lease.server_id} of lease {lease.id}, among others: {error}"
            return frozenset(gone), [NotAsked(CLOUD, why)]
    return frozenset(gone), []


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
        found = {one.id: one for one in sorted(orphans.stored(connection), key=lambda one: one.id)}
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
