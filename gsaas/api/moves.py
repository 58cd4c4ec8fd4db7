# SPDX-License-Identifier: Apache-2.0
"""Moves: an operator has cGPUs of a lease go to other GPUs."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from gsaas import exceptions
from gsaas.api import leases, rbac
from gsaas.api.readings import newest
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.db import clock, gpus
from gsaas.gpgpums.move_changes import Target, destinations
from gsaas.objects import readings
from gsaas.objects.lease import Lease
from gsaas.objects.move import Kind
from gsaas.objects.readings import RESOLUTIONS


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
        connections = _connections(session, lease)
    if connections and not force and lease.moving is None:
        raise exceptions.LeaseConnected(id=lease_id, connections=connections)
    host = wanted.get("host")
    target = Target(wanted.get("index"), uuid, None if host is None else claims.host_named(host))
    kind = Kind.CUT if force else Kind.IDLE
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


def _connections(session: Session, lease: Lease) -> int | None:
    """Return how many connections programs had open at the last report of their endpoint; None if it is not known."""
    connection = session.connection()
    now = clock.now(connection)
    found = newest(connection, [lease], now).get(lease.id)
    if found is None:
        return None
    latest = readings.latest(readings.points(RESOLUTIONS[0], found.cgpus, found.paths, now), now)
    return None if latest is None or latest.path is None else latest.path.connections


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
