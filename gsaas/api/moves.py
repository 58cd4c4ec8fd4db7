# SPDX-License-Identifier: Apache-2.0
"""Moves: an operator has cGPUs of a lease go to other GPUs."""

from __future__ import annotations

from typing import Any

from gsaas import exceptions
from gsaas.api import leases, rbac
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.db import clock, gpus, readings
from gsaas.gpgpums.move_changes import Target, destinations
from gsaas.objects.lease import Lease
from gsaas.objects.move import Kind, consented


def create(request: ApiRequest, lease_id: str) -> ApiResponse:
    """Move cGPUs of a lease: claim other GPUs for them, and leave the rest to the engine.

    Repeating the request while the move goes on has no further effect. With `dry_run`, nothing is done.
    """
    wanted, claims = request.body["move"], request.service.claims
    force, dry_run = wanted.get("force", False), wanted.get("dry_run", False)
    with request.service.database.read() as session:
        lease = leases.find(request, session.connection(), lease_id, rbac.LEASES_MOVE)
        if (uuid := wanted.get("gpu")) is not None:
            gpus.get(session, uuid)
        connection = session.connection()
        now = clock.now(connection)
        connections = readings.connections(connection, [lease.id], now).get(lease.id)
    kind = consented(lease, Kind.CUT if force else Kind.IDLE)
    if connections and kind != Kind.CUT and lease.moving is None:
        raise exceptions.LeaseConnected(id=lease_id, connections=connections)
    host = wanted.get("host")
    target = Target(wanted.get("index"), uuid, None if host is None else claims.host_named(host))
    if dry_run:
        moving = claims.check_move(lease, target, kind)
    else:
        moving = claims.move(lease_id, target, kind)
        request.service.engine.lease_changed(request.context, lease_id)
    shown = {
        "lease_id": lease_id,
        "kind": moving.move_kind,
        "connections": connections,
        "stage": None if dry_run else moving.moving,
        "cgpus": _cgpus(request, moving),
    }
    return ApiResponse(200 if dry_run else 202, {"move": shown})


def _cgpus(request: ApiRequest, lease: Lease) -> list[dict[str, Any]]:
    """Return which cGPUs of *lease* go from where to where."""
    pairs = destinations(lease)
    with request.service.database.read() as session:
        hosts = gpus.hosts_of(session, {claim.gpu_uuid for pair in pairs for claim in pair})
    return [
        {
            "index": of.position,
            "from": {"gpu_uuid": of.gpu_uuid, "gpu_host": hosts[of.gpu_uuid]},
            "to": {"gpu_uuid": to.gpu_uuid, "gpu_host": hosts[to.gpu_uuid]},
        }
        for of, to in pairs
    ]
