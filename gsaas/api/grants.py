"""Grants, for the daemon's side: a consumer shows one there, and it is redeemed here."""

from __future__ import annotations

import ipaddress

from gsaas import exceptions
from gsaas.api.service import Call, Reply
from gsaas.db import leases
from gsaas.grants import redemption
from gsaas.remoting.devices import real_address


def redeem(call: Call) -> Reply:
    """Redeem a grant, once: have the address that showed it admitted to the lease's daemons.

    For whoever stands between consumers and daemons; consumers themselves show theirs at a gate.
    """
    asked = call.body["grant"]
    try:
        ipaddress.IPv4Address(asked["address"])
    except ValueError:
        raise exceptions.BadRequest(
            reason=f'grant.address is "{asked["address"]}"; it must be an IPv4 address'
        ) from None
    shown = redemption.PresentedGrant(
        asked["key"], asked["address"], asked.get("lease_id"), asked.get("project_id")
    )
    lease_id = redemption.redeem(call.service.database, call.service.keyring, shown)
    call.service.engine.lease_changed(call.context, lease_id)
    with call.service.database.read() as session:
        lease = leases.get(session, lease_id)
    devices = [
        {
            "index": claim.position,
            "memory_mb": claim.memory_mb,
            "real_address": str(real_address(claim)),
        }
        for claim in lease.claims
    ]
    told = {
        "lease_id": lease.id,
        "project_id": lease.project_id,
        "address": asked["address"],
        "devices": devices,
    }
    return Reply(200, {"grant": told})
