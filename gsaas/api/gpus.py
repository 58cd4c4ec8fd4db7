# SPDX-License-Identifier: Apache-2.0
"""GPUs: totals for all callers, each GPU for admins."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from gsaas.api import rbac
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.api.times import iso
from gsaas.db import gpus, models
from gsaas.db.database import retried
from gsaas.objects.device_kinds import kind_of

PATH = "/v1/gpus"


def index(request: ApiRequest) -> ApiResponse:
    """Show the totals, and list the GPUs if the caller may see them."""
    sort = request.sort
    if sort:
        request.authorise(rbac.GPUS_SHOW)  # there is nothing to sort for others
    with request.service.database.read() as session:
        body: dict[str, Any] = {"totals": gpus.totals(session)}
        if request.allows(rbac.GPUS_SHOW):
            found = gpus.page(
                session,
                limit=request.page_size + 1,
                marker=request.query.get("marker"),
                sort=sort,
            )
            body["gpus"] = _shown(session, found[: request.page_size])
            if len(found) > request.page_size:
                body["gpus_links"] = request.next_page(PATH, body["gpus"][-1]["uuid"])
    return ApiResponse(200, body)


def show(request: ApiRequest, uuid: str) -> ApiResponse:
    """Show one GPU."""
    with request.service.database.read() as session:
        (shown,) = _shown(session, [gpus.get(session, uuid)])
    return ApiResponse(200, {"gpu": shown})


@retried
def update(request: ApiRequest, uuid: str) -> ApiResponse:
    """Disable a GPU, or enable it again."""
    body = request.body["gpu"]
    with request.service.database.write() as session:
        gpu = gpus.set_disabled(session, uuid, body["disabled"], body.get("disabled_reason"))
        (shown,) = _shown(session, [gpu])
    if not body["disabled"]:
        request.service.claims.queue.advance()  # a queued request may fit now
    return ApiResponse(200, {"gpu": shown})


@retried
def adopt(request: ApiRequest, uuid: str) -> ApiResponse:
    """Consent to the move of a GPU to another host."""
    with request.service.database.write() as session:
        gpu = gpus.adopt(session, uuid, request.body["adopt"]["host"])
        (shown,) = _shown(session, [gpu])
    return ApiResponse(200, {"gpu": shown})


def _shown(session: Session, found: Sequence[models.GpuRow]) -> list[dict[str, Any]]:
    uuids = [gpu.uuid for gpu in found]
    leases, readings = gpus.leases_on(session, uuids), gpus.readings(session, uuids)
    disputes = gpus.disputes(session, uuids)
    return [
        {
            **_gpu(gpu, leases.get(gpu.uuid, []), readings.get(gpu.uuid)),
            "reported_by": disputes.get(gpu.uuid, []),
        }
        for gpu in found
    ]


def _gpu(
    gpu: models.GpuRow, leases: list[str], reading: models.GpuReadingRow | None
) -> dict[str, Any]:
    address = gpu.host.gpu_address
    mode = "shared" if gpu.used_mb else "free"
    return {
        "uuid": gpu.uuid,
        "host": gpu.host_name,
        "index": gpu.device_index,
        "kind": kind_of(gpu.uuid),
        "model": gpu.model,
        "memory_mb": gpu.memory_mb,
        "used_mb": gpu.used_mb,
        "mode": "exclusive" if gpu.exclusive_lease_id else mode,
        "leases": leases,
        "disabled": gpu.disabled,
        "disabled_reason": gpu.disabled_reason,
        "withdrawn": gpu.withdrawn_reason,
        "awaits_operator": gpu.awaits_operator,
        "parent_uuid": gpu.parent_uuid,
        "compute_capability": gpu.compute_capability,
        "reading": reading and _reading(reading),
        "daemon_address": address and f"{address}:{gpu.daemon_port}",
        "generation": gpu.generation,
        "reserved_mb": gpu.reserved_mb,
    }


def _reading(reading: models.GpuReadingRow) -> dict[str, Any]:
    return {
        "at": iso(reading.at),
        "used_mb": reading.used_mb,
        "utilisation": reading.utilisation,
        "mean_utilisation": reading.mean_utilisation,
        "temperature_c": reading.temperature_c,
        "power_w": reading.power_w,
        "processes": reading.processes,
        "xid_errors": [
            {**error, "at": iso(datetime.datetime.fromisoformat(error["at"]))}
            for error in reading.xid_errors
        ],
    }
