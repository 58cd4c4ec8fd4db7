"""GPUs: totals for everybody, each of them for admins."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from gsaas.api.rbac import gpus as rbac
from gsaas.api.service import Call, Reply
from gsaas.api.times import iso
from gsaas.db import gpus, models
from gsaas.db.database import retried

PATH = "/v1/gpus"


def index(call: Call) -> Reply:
    """Tell the totals, and list the GPUs to those who may see them."""
    with call.service.database.read() as session:
        body: dict[str, Any] = {"totals": gpus.totals(session)}
        if call.allows(rbac.SHOW):
            found = gpus.page(session, limit=call.limit + 1, marker=call.query.get("marker"))
            body["gpus"] = _shown(session, found[: call.limit])
            if len(found) > call.limit:
                body["gpus_links"] = call.next_page(PATH, body["gpus"][-1]["uuid"])
    return Reply(200, body)


def show(call: Call, uuid: str) -> Reply:
    """Show one GPU."""
    with call.service.database.read() as session:
        (shown,) = _shown(session, [gpus.get(session, uuid)])
    return Reply(200, {"gpu": shown})


@retried
def update(call: Call, uuid: str) -> Reply:
    """Disable a GPU, or enable it again."""
    asked = call.body["gpu"]
    with call.service.database.write() as session:
        gpu = gpus.set_disabled(session, uuid, asked["disabled"], asked.get("disabled_reason"))
        (shown,) = _shown(session, [gpu])
    if not asked["disabled"]:
        call.service.claims.advance()
    return Reply(200, {"gpu": shown})


def _shown(session: Session, found: Sequence[models.GpuRow]) -> list[dict[str, Any]]:
    uuids = [gpu.uuid for gpu in found]
    held, readings = gpus.leases_on(session, uuids), gpus.readings(session, uuids)
    return [_gpu(gpu, held.get(gpu.uuid, []), readings.get(gpu.uuid)) for gpu in found]


def _gpu(
    gpu: models.GpuRow, held: list[str], reading: models.GpuReadingRow | None
) -> dict[str, Any]:
    address = gpu.host.gpu_address
    mode = "shared" if gpu.used_mb else "free"
    return {
        "uuid": gpu.uuid,
        "host": gpu.host_name,
        "index": gpu.device_index,
        "model": gpu.model,
        "memory_mb": gpu.memory_mb,
        "used_mb": gpu.used_mb,
        "mode": "exclusive" if gpu.exclusive_lease_id else mode,
        "leases": held,
        "disabled": gpu.disabled,
        "disabled_reason": gpu.disabled_reason,
        "withdrawn": gpu.withdrawn_reason,
        "awaits_operator": gpu.awaits_operator,
        "parent_uuid": gpu.parent_uuid,
        "compute_capability": gpu.compute_capability,
        "reading": reading and _reading(reading),
        "daemon_address": address and f"{address}:{gpu.daemon_port}",
        "generation": gpu.generation,
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
