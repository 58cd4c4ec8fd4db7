"""GPUs: totals for everybody, each of them for admins."""

from __future__ import annotations

from typing import Any

from gsaas.api.rbac import gpus as rbac
from gsaas.api.service import Call, Reply
from gsaas.db import gpus, models
from gsaas.db.database import retried

PATH = "/v1/gpus"


def index(call: Call) -> Reply:
    """Tell the totals, and list the GPUs to those who may see them."""
    with call.service.database.read() as session:
        body: dict[str, Any] = {"totals": gpus.totals(session)}
        if call.allows(rbac.SHOW):
            found = gpus.page(session, limit=call.limit + 1, marker=call.query.get("marker"))
            held = gpus.leases_on(session, [gpu.uuid for gpu in found])
            body["gpus"] = [_gpu(gpu, held.get(gpu.uuid, [])) for gpu in found[: call.limit]]
            if len(found) > call.limit:
                body["gpus_links"] = call.next_page(PATH, body["gpus"][-1]["uuid"])
    return Reply(200, body)


def show(call: Call, uuid: str) -> Reply:
    """Show one GPU."""
    with call.service.database.read() as session:
        gpu = gpus.get(session, uuid)
        held = gpus.leases_on(session, [uuid])
        return Reply(200, {"gpu": _gpu(gpu, held.get(uuid, []))})


@retried
def update(call: Call, uuid: str) -> Reply:
    """Disable a GPU, or enable it again."""
    asked = call.body["gpu"]
    with call.service.database.write() as session:
        gpu = gpus.set_disabled(session, uuid, asked["disabled"], asked.get("disabled_reason"))
        held = gpus.leases_on(session, [uuid])
        return Reply(200, {"gpu": _gpu(gpu, held.get(uuid, []))})


def _gpu(gpu: models.Gpu, held: list[str]) -> dict[str, Any]:
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
        "daemon_address": address and f"{address}:{gpu.daemon_port}",
        "generation": gpu.generation,
    }
