# SPDX-License-Identifier: Apache-2.0
"""Dry runs: whether a request would fit and where, or why not and what would fit instead."""

from __future__ import annotations

from typing import Any

from gsaas import exceptions
from gsaas.api import cgpus, limits, rbac
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.db import gpus
from gsaas.objects.placement import Placement, Refusal


def create(request: ApiRequest) -> ApiResponse:
    """Check how a launch of these cGPUs would be answered now, without claiming anything."""
    try:
        answer = _check(request, request.body["check"])
        if isinstance(answer, Refusal):
            return ApiResponse(200, {"check": _refusal(answer)})
        quota = request.service.limits.of(request.project_id)
        limits.check(request, quota, answer, within="reservation" in request.body["check"])
    except (
        exceptions.NeverFits,
        exceptions.QuotaExceeded,
        exceptions.ReservationNotActive,
    ) as error:
        return ApiResponse(200, {"check": _error(error)})
    return ApiResponse(200, {"check": _placement(request, answer)})


def _check(request: ApiRequest, body: dict[str, Any]) -> Placement | Refusal:
    """Return where the cGPUs would go. Raises what a launch of them raises before it looks for GPUs."""
    claims, policy = request.service.claims, body.get("policy")
    gpu_request = cgpus.parse(request.service, body, body.get("consumer"))
    if "reservation" not in body:
        return claims.check(gpu_request, policy)
    return claims.check_within(body["reservation"], request.project_id, gpu_request, policy)


def _refusal(refusal: Refusal) -> dict[str, Any]:
    details = refusal.to_dict()
    reasons = {name: details[name] for name in ("filters", "nearest", "relaxed")}
    return _error(cgpus.capacity_error(refusal)) | reasons


def _error(error: exceptions.GsaasError) -> dict[str, Any]:
    return {
        "fits": False,
        "code": error.code,
        "reason": str(error),
        "filters": [],
        "nearest": None,
        "relaxed": None,
        "devices": [],
    }


def _placement(request: ApiRequest, placement: Placement) -> dict[str, Any]:
    devices: list[dict[str, Any]] = [{"memory_mb": share.memory_mb} for share in placement.shares]
    if request.allows(rbac.LEASES_SHOW_PLACEMENT):
        with request.service.database.read() as session:
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
