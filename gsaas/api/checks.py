"""Dry runs: would it fit, where, why not, and what would."""

from __future__ import annotations

from typing import Any

from gsaas.api import cgpus
from gsaas.api.rbac import leases as rbac
from gsaas.api.service import Call, Reply
from gsaas.db import gpus
from gsaas.gpgpums.state import Placement, Refusal


def create(call: Call) -> Reply:
    """Say what a launch of these cGPUs would be answered now; nothing is claimed."""
    asked = call.body["check"]
    wanted = cgpus.request(call.service, asked)
    answer = call.service.claims.check(wanted, asked.get("policy"))
    shown = _refusal(answer) if isinstance(answer, Refusal) else _placement(call, answer)
    return Reply(200, {"check": shown})


def _refusal(refusal: Refusal) -> dict[str, Any]:
    told = refusal.to_dict()
    return {
        "fits": False,
        "code": cgpus.refused(refusal).code,
        "reason": refusal.reason,
        "filters": told["filters"],
        "nearest": told["nearest"],
        "devices": [],
    }


def _placement(call: Call, placement: Placement) -> dict[str, Any]:
    devices: list[dict[str, Any]] = [{"memory_mb": share.memory_mb} for share in placement.shares]
    if call.allows(rbac.SHOW_PLACEMENT):
        with call.service.database.read() as session:
            hosts = gpus.hosts_of(session, {share.gpu_uuid for share in placement.shares})
        for device, share in zip(devices, placement.shares, strict=True):
            device |= {"gpu_uuid": share.gpu_uuid, "gpu_host": hosts.get(share.gpu_uuid, "")}
    return {
        "fits": True,
        "code": None,
        "reason": None,
        "filters": [],
        "nearest": None,
        "devices": devices,
    }
