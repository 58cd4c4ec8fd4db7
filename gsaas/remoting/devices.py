# SPDX-License-Identifier: Apache-2.0
"""The cGPUs of a lease as its consumer sees them."""

from __future__ import annotations

from gsaas.objects.access import Access
from gsaas.objects.lease import Claim, Lease
from gsaas.remoting.base import ClientDevice


def devices_of(lease: Lease) -> list[ClientDevice]:
    """Return the devices of a lease, by position; its claims were read with their GPUs."""
    return [
        ClientDevice(
            claim.masked_address or claim.real_address,
            lease.memory_mb,
            claim.gpu_uuid if lease.access == Access.NATIVE else None,
            None if lease.access == Access.NATIVE else _middleware(claim),
            claim.daemon_device,
        )
        for claim in lease.claims
    ]


def _middleware(claim: Claim) -> str | None:
    """Return the version that the daemons of a GPU host have, if its monitor has reported it."""
    told: str | None = (claim.gpu.host.monitor_report or {}).get("middleware")
    return told
