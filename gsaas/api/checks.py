"""Dry runs: would it fit, where, why not, and what would."""

from __future__ import annotations

from typing import Any

from gsaas import exceptions
from gsaas.api import cgpus, limits
from gsaas.api.rbac import leases as rbac
from gsaas.api.service import Call, Reply
from gsaas.db import gpus
from gsaas.objects.placement import Placement, Refusal


def create(call: Call) -> Reply:
    """Say what a launch of these cGPUs would be answered now; nothing is claimed."""
    asked = call.body["check"]
    wanted = cgpus.request(call.service, asked, asked.get("consumer"))
    answer = call.service.claims.check(wanted, asked.get("policy"))
    if isinstance(answer, Refusal):
        return Reply(200, {"check": _refusal(answer)})
    try:
        limits.check(call, call.service.limits.of(call.context.project_id), answer)
    except exceptions.QuotaExceeded as exceeded:
        return Reply(200, {"check": _no(exceeded)})
    return Reply(200, {"check": _placement(call, answer)})


def _refusal(refusal: Refusal) -> dict[str, Any]:
    told = refusal.to_dict()
    said = {name: told[name] for name in ("filters", "nearest", "relaxed")}
    return _no(cgpus.refused(refusal)) | said


def _no(error: exceptions.GsaasError) -> dict[str, Any]:
    return {
        "fits": False,
        "code": error.code,
        "reason": str(error),
        "filters": [],
        "nearest": None,
        "relaxed": None,
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
        "relaxed": None,
        "devices": devices,
    }
