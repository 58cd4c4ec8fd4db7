# SPDX-License-Identifier: Apache-2.0
"""A lease as responses contain it, with as much of its placement as the caller may see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from gsaas.api import cgpus, degraded, microversions, queue, rbac, readings
from gsaas.api.endpoints import dropped_packets
from gsaas.api.request import ApiRequest
from gsaas.api.service import ApiService
from gsaas.api.times import iso
from gsaas.db import clock, endpoints
from gsaas.db.leases import RecordedEvent
from gsaas.db.readings import Intervals
from gsaas.objects import timings
from gsaas.objects.access import Access
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.move import Kind
from gsaas.objects.refusals import Refusals
from gsaas.remoting.devices import devices_of

PATH = "/v1/leases"
GATE, GRANT, LEASE = "GSAAS_GATE", "GSAAS_GRANT", "GSAAS_LEASE"
"""Variables of a lease's environment: the gate's HOST:PORT, the grant, and the lease's id."""


def show_lease(
    request: ApiRequest,
    connection: Connection | None,
    lease: Lease,
    newest: Mapping[str, Intervals] | None = None,
) -> dict[str, Any]:
    """Return *lease* as JSON; only admins see its placement, and only who may use it what that needs.

    *connection* may be None for a lease that is not in the queue and has no binding. *newest* are the newest readings
    of it and other leases, which are read here if they are not given.
    """
    show_placement = request.allows(rbac.LEASES_SHOW_PLACEMENT, target(lease))
    # A lease with a server shows nothing that it takes to use it.
    may_use = not lease.has_server and request.allows(rbac.LEASES_ENVIRONMENT, target(lease))
    server = {"id": lease.server_id, "addresses": _addresses(lease)}
    if show_placement:
        server["host"] = lease.server_host
    fault = None
    if lease.fault_message is not None:
        fault = {"step": lease.fault_step, "message": lease.fault_message}
    return {
        "id": lease.id,
        "name": lease.name,
        "status": lease.status,
        "project_id": lease.project_id,
        "user_id": lease.user_id,
        "created_at": iso(lease.created_at),
        "updated_at": iso(lease.updated_at),
        "claimed_at": iso(lease.claimed_at),
        "released_at": iso(lease.released_at),
        "kept_until": iso(lease.kept_until),
        "queued_at": iso(lease.queued_at),
        "wait_until": iso(lease.wait_until),
        "priority": lease.priority,
        "queue": queue.describe(request, connection, lease),
        "cgpus": cgpus.describe(lease),
        "remoting": lease.remoting,
        "access": lease.access,
        "server": server if lease.has_server else None,
        "consumer": None if lease.has_server else _consumer(lease, show_placement or may_use),
        **_degraded(request, connection, lease, show_placement),
        "devices": [_device(lease, claim, show_placement, may_use) for claim in lease.claims],
        "fault": fault,
        **_path(connection, lease),
        "timings": _timings(lease),
        **_readings(request, connection, lease, newest),
        "reclaim_at": iso(lease.reclaim_at) if lease.status == Status.ACTIVE else None,
        "duration": lease.duration,
        "ends_at": iso(lease.ends_at),
        "movable": lease.movable or Kind.IDLE,
        "cut_at": iso(lease.cut_at),
        "reservation": lease.reservation_id,
        "links": [request.link(f"{PATH}/{lease.id}")],
    }


def show_event(request: ApiRequest, event: RecordedEvent) -> dict[str, Any]:
    """Return an event of a lease as JSON; only admins see its detail, which may name hosts."""
    return {
        "at": iso(event.at),
        "event": event.event,
        "status": event.status,
        "detail": event.detail if request.allows(rbac.LEASES_SHOW_PLACEMENT) else None,
    }


def environment(service: ApiService, lease: Lease) -> dict[str, str]:
    """Return the environment variables with which programs find the cGPUs of *lease*.

    Reads the lease's claims, their GPUs and the hosts of these. The variables of a lease without a server also name
    the lease and, if its consumer has to present a grant, have a new one.
    """
    variables = service.drivers.named(lease.remoting).environment(lease.id, devices_of(lease))
    if lease.has_server:
        return variables
    own = {LEASE: lease.id}
    if lease.access == Access.DIRECT and service.keyring and lease.admitted_address is None:
        own[GRANT] = service.keyring.sign(lease.id, lease.project_id, service.database.now())
        if port := service.conf.grants.gate_port:
            own[GATE] = f"{lease.claims[0].gpu.host.gpu_address}:{port}"
    return {**own, **variables}


def target(lease: Lease) -> dict[str, str]:
    """Return *lease* as the target of an access rule."""
    return {"project_id": lease.project_id, "user_id": lease.user_id}


def _consumer(lease: Lease, show_where: bool) -> dict[str, Any]:
    return {
        "host": lease.consumer_host if show_where else None,
        "uid": lease.consumer_uid,
        "address": lease.consumer_address if show_where else None,
    }


def _degraded(
    request: ApiRequest, connection: Connection | None, lease: Lease, show_placement: bool
) -> dict[str, Any]:
    """Return whether the lease is degraded, and why if the caller may see GPUs and hosts."""
    service = request.service
    now = service.database.now() if connection is None else clock.now(connection)
    reasons = degraded.reasons(lease, service.conf.gpgpums.heartbeat_timeout, now)
    return {"degraded": bool(reasons), **({"degraded_reasons": reasons} if show_placement else {})}


def _device(lease: Lease, claim: Claim, show_placement: bool, may_use: bool) -> dict[str, Any]:
    """Return one cGPU; with its GPU or real address if the consumer needs that and the caller may use the lease."""
    device: dict[str, Any] = {
        "index": claim.position,
        "masked_address": claim.masked_address and str(claim.masked_address),
        "memory_mb": claim.memory_mb,
    }
    if show_placement or (may_use and lease.access == Access.NATIVE):
        device["gpu_uuid"] = claim.gpu_uuid
    if show_placement:
        device["gpu_host"] = claim.gpu.host_name
    if show_placement or (may_use and lease.access == Access.DIRECT):
        known = claim.gpu.host.gpu_address is not None
        device["real_address"] = str(claim.real_address) if known else None
    return device


def _path(connection: Connection | None, lease: Lease) -> dict[str, Any]:
    """Return what its consumer's host has refused to it, from the last report of that host's endpoint."""
    if connection is None or lease.bound_host is None or lease.port_id is None:
        return {"dropped_packets": None, "problems": []}
    report = endpoints.report_of(connection, lease.bound_host) or {}
    binding = report.get("bindings", {}).get(lease.port_id)
    refusals = report.get("refusals", {}).get(lease.port_id)
    addresses = _addresses(lease)
    return {
        # None if the endpoint has not reported the binding.
        "dropped_packets": None if binding is None else dropped_packets(binding),
        "problems": [] if refusals is None else Refusals.from_dict(refusals).sentences(addresses),
    }


def _addresses(lease: Lease) -> list[str]:
    """Return the addresses of the port that carries its binding."""
    return [lease.port_ip, *(lease.port_other_ips or ())] if lease.port_ip else []


def _timings(lease: Lease) -> dict[str, float]:
    """Return the seconds of the phases that the launch has completed, in the order in which they begin."""
    seconds = lease.timings or {}
    return {phase: seconds[phase] for phase in timings.PHASES if phase in seconds}


def _readings(
    request: ApiRequest,
    connection: Connection | None,
    lease: Lease,
    newest: Mapping[str, Intervals] | None,
) -> dict[str, Any]:
    """Return the fields that follow from the newest readings."""
    if not request.supports(microversions.READINGS):
        return {}  # the answer would not have them: they need not be read
    now = request.service.database.now() if connection is None else clock.now(connection)
    if newest is None:
        newest = {} if connection is None else readings.newest(connection, [lease], now)
    return readings.summary(lease, newest, now)
