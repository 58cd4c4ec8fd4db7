"""A lease as others see it: the binding its endpoint is to hold, the devices its consumer is told of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gsaas.objects.access import Access
from gsaas.objects.address import Address
from gsaas.objects.binding import Binding, LocalBinding
from gsaas.objects.lifecycle import Status
from gsaas.remoting.base import ClientDevice

if TYPE_CHECKING:
    from gsaas.db.models import Claim, Lease

WIRED = frozenset({Status.CLAIMED, Status.BOOTING, Status.ACTIVE})
"""Only these may reach GPUs. A binding that is being removed is never handed out again: an endpoint that
restarts at that moment would bring it back to life after its removal was confirmed."""


def binding_of(lease: Lease) -> Binding | LocalBinding:
    """Return the binding of a lease whose port is recorded; reads its claims, GPUs and their hosts."""
    mappings = {
        Address(claim.masked_ip, claim.masked_port): real_address(claim) for claim in lease.claims
    }
    if not lease.has_server:
        return LocalBinding(lease.port_id, lease.id, lease.consumer_uid, mappings)
    return Binding(
        port_id=lease.port_id,
        lease_id=lease.id,
        tap=lease.port_tap,
        mac=lease.port_mac,
        ip=lease.port_ip,
        mappings=mappings,
    )


def devices_of(lease: Lease) -> list[ClientDevice]:
    """Return a lease's cGPUs as its consumer is told of them; reads its claims, GPUs and their hosts."""
    return [
        ClientDevice(
            real_address(claim)
            if claim.masked_ip is None
            else Address(claim.masked_ip, claim.masked_port),
            lease.memory_mb,
            claim.gpu_uuid if lease.access == Access.NATIVE else None,
        )
        for claim in lease.claims
    ]


def real_address(claim: Claim) -> Address:
    """Where the daemon of a cGPU listens: its own, or the one of its GPU."""
    return Address(claim.gpu.host.gpu_address, claim.daemon_port or claim.gpu.daemon_port)
