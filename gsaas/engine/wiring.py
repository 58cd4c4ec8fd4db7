"""A lease as the binding its endpoint is to hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsaas.lifecycle import Status
from gsaas.rodvr.bindings import Address, Binding

if TYPE_CHECKING:
    from gsaas.db.models import Lease

WIRED = frozenset({Status.CLAIMED, Status.BOOTING, Status.ACTIVE})
"""Only these may reach GPUs. A binding that is being removed is never handed out again: an endpoint that
restarts at that moment would bring it back to life after its removal was confirmed."""


def binding(lease: Lease) -> Binding:
    """Return the binding of a lease whose port is recorded; reads its claims, GPUs and their hosts."""
    return Binding(
        port_id=lease.port_id,
        lease_id=lease.id,
        tap=lease.port_tap,
        mac=lease.port_mac,
        ip=lease.port_ip,
        mappings={
            Address(claim.masked_ip, claim.masked_port): Address(
                claim.gpu.host.gpu_address, claim.gpu.daemon_port
            )
            for claim in lease.claims
        },
    )
