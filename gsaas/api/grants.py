# SPDX-License-Identifier: Apache-2.0
"""Grants: daemons and proxies redeem here the grants that consumers present to them."""

from __future__ import annotations

import ipaddress

from gsaas import exceptions
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.db import leases
from gsaas.grants import redemption


def redeem(request: ApiRequest) -> ApiResponse:
    """Redeem a grant, once: admit the address that presented it to the lease's daemons.

    This is for services between consumers and daemons; consumers themselves present their grants at a gate.
    """
    body = request.body["grant"]
    try:
        ipaddress.IPv4Address(body["address"])
    except ValueError:
        raise exceptions.BadRequest(
            reason=f'grant.address is "{body["address"]}"; it must be an IPv4 address'
        ) from None
    presented = redemption.PresentedGrant(
        body["key"], body["address"], body.get("lease_id"), body.get("project_id")
    )
    lease_id = redemption.redeem(request.service.database, request.service.keyring, presented)
    request.service.engine.lease_changed(request.context, lease_id)
    with request.service.database.reading() as connection:
        lease = leases.get(connection, lease_id)
    devices = [
        {
            "index": claim.position,
            "memory_mb": claim.memory_mb,
            "real_address": str(claim.real_address),
        }
        for claim in lease.claims
    ]
    grant = {
        "lease_id": lease.id,
        "project_id": lease.project_id,
        "address": body["address"],
        "devices": devices,
    }
    return ApiResponse(200, {"grant": grant})
