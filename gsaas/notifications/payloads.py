# SPDX-License-Identifier: Apache-2.0
"""The payloads of notifications, in the form that oslo.versionedobjects gives to those of Nova. Pure.

    {"gsaas_object.name": "QuotaPayload", "gsaas_object.namespace": "gsaas",
     "gsaas_object.version": "1.0", "gsaas_object.data": {...}}

`schemas` describes them. Payloads are for operators: they name GPUs and hosts. They contain no grant, no user data and
no environment.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from gsaas.notifications.schemas import NAMESPACE, PAYLOADS, VERSIONS
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.reservation import Reservation


def lease(lease: Lease, status: str, at: datetime.datetime) -> dict[str, Any]:
    """Return the payload about a lease that got *status* at the moment *at*.

    *lease* is read after that, so its other fields may be newer: a lease that is RELEASED by now has no devices.
    """
    fault = None
    if lease.fault_message is not None:
        fault = _object(
            "LeaseFaultPayload", {"step": lease.fault_step, "message": lease.fault_message}
        )
    other = {
        "status": str(status),
        "at": _time(at),
        "fault": fault,
        "devices": [_device(claim) for claim in lease.claims],
    }
    _, fields = PAYLOADS["LeasePayload"]
    return _object(
        "LeasePayload",
        {name: other[name] if name in other else _plain(getattr(lease, name)) for name in fields},
    )


def gpu(
    *,
    uuid: str,
    host: str,
    model: str,
    memory_mb: int,
    reason: str | None,
    awaits_operator: bool,
    at: datetime.datetime,
) -> dict[str, Any]:
    """Return the payload about a GPU that was withdrawn for *reason*, or has returned if that is None."""
    return _object(
        "GpuPayload",
        {
            "uuid": uuid,
            "host": host,
            "model": model,
            "memory_mb": memory_mb,
            "withdrawn_reason": reason,
            "awaits_operator": awaits_operator,
            "at": _time(at),
        },
    )


def quota(
    *, project_id: str, user_id: str, request_id: str, reason: str, cgpus: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the payload about a launch that a quota refused; *cgpus* is what it asked for, as the API validated it."""
    return _object(
        "QuotaPayload",
        {
            "project_id": project_id,
            "user_id": user_id,
            "request_id": request_id,
            "reason": reason,
            "count": cgpus.get("count", 1),
            "mode": cgpus.get("mode", "exclusive"),
            "memory_mb": cgpus.get("memory_mb"),
        },
    )


def reservation(
    one: Reservation,
    status: str,
    at: datetime.datetime,
    moved_from: Mapping[int, str],
    hosts: Mapping[str, str],
) -> dict[str, Any]:
    """Return the payload about a reservation that had *status* after an event at the moment *at*.

    It is read after that, so its shares may be newer. *moved_from* has the former GPU of each share that the event has
    moved, by position; *hosts* has the hosts of its GPUs by UUID, without those that are gone.
    """
    return _object(
        "ReservationPayload",
        {
            "id": one.id,
            "name": one.name,
            "project_id": one.project_id,
            "user_id": one.user_id,
            "status": str(status),
            "at": _time(at),
            "created_at": _time(one.created_at),
            "start": _time(one.start),
            "end": _time(one.end),
            "count": one.cgpus["count"],
            "mode": one.cgpus["mode"],
            "memory_mb": one.cgpus["memory_mb"],
            "shares": [
                _object(
                    "ReservedSharePayload",
                    {
                        "index": share.position,
                        "memory_mb": share.memory_mb,
                        "gpu_uuid": share.gpu_uuid,
                        "gpu_host": hosts.get(share.gpu_uuid),
                        "kept": share.kept,
                        "lease_id": share.lease_id,
                        "moved_from": moved_from.get(share.position),
                    },
                )
                for share in one.shares
            ],
        },
    )


def _device(claim: Claim) -> dict[str, Any]:
    return _object(
        "LeaseDevicePayload",
        {
            "index": claim.position,
            "memory_mb": claim.memory_mb,
            "gpu_uuid": claim.gpu_uuid,
            "gpu_host": claim.gpu.host_name,
        },
    )


def _object(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "gsaas_object.name": name,
        "gsaas_object.namespace": NAMESPACE,
        "gsaas_object.version": VERSIONS[name],
        "gsaas_object.data": dict(data),
    }


def _plain(value: Any) -> Any:
    """Return a value of a lease as JSON has it."""
    if isinstance(value, datetime.datetime):
        return _time(value)
    return str(value) if isinstance(value, str) else value  # of an enumeration, the text alone


def _time(when: datetime.datetime | None) -> str | None:
    return None if when is None else when.isoformat(timespec="microseconds") + "Z"
