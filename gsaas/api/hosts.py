# SPDX-License-Identifier: Apache-2.0
"""Hosts: totals for all callers, each host for admins."""

from __future__ import annotations

from typing import Any

from sqlalchemy import orm

from gsaas import exceptions
from gsaas.api import rbac
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.api.times import iso, parse
from gsaas.conf import agent
from gsaas.db import clock, gpus, hosts, models
from gsaas.db.database import retried

PATH = "/v1/hosts"


def index(request: ApiRequest) -> ApiResponse:
    """Show the totals, and list the hosts if the caller may see them."""
    sort = request.sort
    if sort:
        request.authorise(rbac.HOSTS_SHOW)  # there is nothing to sort for others
    with request.service.database.read() as session:
        body: dict[str, Any] = {"totals": gpus.totals(session)}
        if request.allows(rbac.HOSTS_SHOW):
            found = hosts.page(
                session,
                limit=request.page_size + 1,
                marker=request.query.get("marker"),
                sort=sort,
            )
            body["hosts"] = [_host(request, session, host) for host in found[: request.page_size]]
            if len(found) > request.page_size:
                body["hosts_links"] = request.next_page(PATH, body["hosts"][-1]["name"])
    return ApiResponse(200, body)


def show(request: ApiRequest, name: str) -> ApiResponse:
    """Show one host."""
    with request.service.database.read() as session:
        return ApiResponse(200, {"host": _host(request, session, hosts.get(session, name))})


@retried
def update(request: ApiRequest, name: str) -> ApiResponse:
    """Disable a host, drain it, or enable it again."""
    body = request.body["host"]
    draining = _draining(body)
    with request.service.database.write() as session:
        host = hosts.set_disabled(
            session, name, body["disabled"], body.get("disabled_reason"), draining
        )
        shown = _host(request, session, host)
    if not body["disabled"]:
        request.service.claims.queue.advance()  # a queued request may fit now
    return ApiResponse(200, {"host": shown})


@retried
def delete(request: ApiRequest, name: str) -> ApiResponse:
    """Declare a host permanently gone, and fail the leases that have GPUs of it."""
    service = request.service
    with service.database.write() as session:
        forgotten = hosts.forget(
            session,
            name,
            timeout=None if request.query.get("force") else agent.silence_timeout(service.conf),
            servers_stay=service.cloud.needs_caller,  # a server created with its owner's token is the owner's to delete
        )
    for lease_id in sorted({*forgotten.failed, *forgotten.unbound}):
        service.engine.lease_changed(request.context, lease_id)
    shown = {
        "name": name,
        "failed_leases": forgotten.failed,
        "unbound_leases": forgotten.unbound,
    }
    return ApiResponse(202, {"forgotten": shown})


def _draining(body: dict[str, Any]) -> hosts.Draining | None:
    """Return how the host is to be drained; None if it is not to be. Raises `BadRequest`."""
    wanted = body.get("drain")
    if wanted is None:
        return None
    if not body["disabled"]:
        raise exceptions.BadRequest(
            reason="host.drain is for a host that is to be disabled: set host.disabled to true, or leave out host.drain"
        )
    force, by = wanted.get("force", False), wanted.get("by")
    if force and by is not None:
        raise exceptions.BadRequest(
            reason="host.drain has force, which cuts connections now, and by, which cuts them later: leave one out"
        )
    return hosts.Draining(None if by is None else parse(by, "host.drain.by"), now=force)


def _drain(session: orm.Session, host: models.HostRow) -> dict[str, Any] | None:
    """Return how far the drain of a host is; None if it is not drained."""
    if host.draining_since is None:
        return None
    on = gpus.leases_on(session, [gpu.uuid for gpu in host.gpus])
    waits = host.drain_waits or {}
    return {
        "since": iso(host.draining_since),
        "by": iso(host.drain_by),
        "leases": [
            {"id": lease_id, "waits": waits.get(lease_id)}
            for lease_id in sorted({lease_id for found in on.values() for lease_id in found})
        ],
    }


def _host(request: ApiRequest, session: orm.Session, host: models.HostRow) -> dict[str, Any]:
    offered = [
        gpu for gpu in host.gpus if not (gpu.disabled or gpu.withdrawn_reason or host.disabled)
    ]
    return {
        "name": host.name,
        "gpu_address": host.gpu_address,
        "gpus": len(host.gpus),
        "memory_mb": sum(gpu.memory_mb for gpu in host.gpus),
        "free_mb": sum(gpu.memory_mb - gpu.used_mb - gpu.reserved_mb for gpu in offered),
        "compute": host.endpoint is not None,
        "disabled": host.disabled,
        "disabled_reason": host.disabled_reason,
        "monitor_seen_at": iso(host.monitor_seen_at),
        "monitor_interval": host.monitor_interval,
        "problems": hosts.problems(host.monitor_problems, host.monitor_report),
        "silent": _silent(request, session, host),
        "drain": _drain(session, host),
    }


def _silent(request: ApiRequest, session: orm.Session, host: models.HostRow) -> bool:
    """Return whether the host's monitor has stopped reporting; False for a host without GPUs: it needs no monitor."""
    return bool(host.gpus) and hosts.is_silent(
        host.monitor_seen_at,
        host.monitor_interval,
        request.service.conf.gpgpums.heartbeat_timeout,
        clock.now(session.connection()),
    )
