"""Hosts: totals for everybody, each of them for admins."""

from __future__ import annotations

from typing import Any

from gsaas.api.rbac import hosts as rbac
from gsaas.api.service import Call, Reply
from gsaas.api.times import iso
from gsaas.conf import agent
from gsaas.db import gpus, hosts, models
from gsaas.db.database import retried

PATH = "/v1/hosts"


def index(call: Call) -> Reply:
    """Tell the totals, and list the hosts to those who may see them."""
    with call.service.database.read() as session:
        body: dict[str, Any] = {"totals": gpus.totals(session)}
        if call.allows(rbac.SHOW):
            found = hosts.page(session, limit=call.limit + 1, marker=call.query.get("marker"))
            body["hosts"] = [_host(call, host) for host in found[: call.limit]]
            if len(found) > call.limit:
                body["hosts_links"] = call.next_page(PATH, body["hosts"][-1]["name"])
    return Reply(200, body)


def show(call: Call, name: str) -> Reply:
    """Show one host."""
    with call.service.database.read() as session:
        return Reply(200, {"host": _host(call, hosts.get(session, name))})


@retried
def update(call: Call, name: str) -> Reply:
    """Disable a host, or enable it again."""
    asked = call.body["host"]
    with call.service.database.write() as session:
        host = hosts.set_disabled(session, name, asked["disabled"], asked.get("disabled_reason"))
        shown = _host(call, host)
    if not asked["disabled"]:
        call.service.claims.advance()
    return Reply(200, {"host": shown})


@retried
def delete(call: Call, name: str) -> Reply:
    """Declare a host gone for good, and fail the leases that hold its GPUs."""
    service = call.service
    with service.database.write() as session:
        forgotten = hosts.forget(
            session,
            name,
            timeout=None if call.query.get("force") else agent.silence_timeout(service.conf),
            servers_stay=service.cloud.needs_caller,  # made in its owner's name, it is its owner's
        )
    for lease_id in sorted({*forgotten.failed, *forgotten.unbound}):
        service.engine.lease_changed(call.context, lease_id)
    shown = {
        "name": name,
        "failed_leases": forgotten.failed,
        "unbound_leases": forgotten.unbound,
    }
    return Reply(202, {"forgotten": shown})


def _host(call: Call, host: models.HostRow) -> dict[str, Any]:
    offered = [
        gpu for gpu in host.gpus if not (gpu.disabled or gpu.withdrawn_reason or host.disabled)
    ]
    return {
        "name": host.name,
        "gpu_address": host.gpu_address,
        "gpus": len(host.gpus),
        "memory_mb": sum(gpu.memory_mb for gpu in host.gpus),
        "free_mb": sum(gpu.memory_mb - gpu.used_mb for gpu in offered),
        "compute": host.endpoint is not None,
        "disabled": host.disabled,
        "disabled_reason": host.disabled_reason,
        "monitor_seen_at": iso(host.monitor_seen_at),
        "monitor_interval": host.monitor_interval,
        "problems": host.monitor_problems,
        "silent": _silent(host, call.service.conf.gpgpums.heartbeat_timeout),
    }


def _silent(host: models.HostRow, timeout: int) -> bool:
    """Has its monitor been quiet for too long? A host without GPUs has none that could be missed."""
    return bool(host.gpus) and hosts.is_silent(host.monitor_seen_at, host.monitor_interval, timeout)
