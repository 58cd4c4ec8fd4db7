"""Which leases do not have all they were given, and why. Rows in, sentences out."""

from __future__ import annotations

from collections.abc import Iterator

from gsaas.db import hosts, models
from gsaas.objects.lifecycle import Status

HOLDING = frozenset({Status.CLAIMED, Status.BOOTING, Status.ACTIVE})
"""A lease in another status has no GPUs, or is to lose them anyway."""

TROUBLED = ("down", "unresponsive")
"""States of a daemon that served before, as its monitor reports them."""


def reasons(lease: models.LeaseRow, timeout: float) -> list[str]:
    """Return what is wrong with the GPUs that *lease* holds, each thing once; nothing for most leases.

    A host is silent after *timeout* seconds, or after some of its own intervals.
    """
    if lease.status not in HOLDING:
        return []
    return list(dict.fromkeys(_found(lease, timeout)))


def _found(lease: models.LeaseRow, timeout: float) -> Iterator[str]:
    for claim in lease.claims:
        gpu, host = claim.gpu, claim.gpu.host
        if gpu.withdrawn_reason is not None:
            yield f"GPU {gpu.uuid} on {host.name}: {gpu.withdrawn_reason}"
        if hosts.is_silent(host.monitor_seen_at, host.monitor_interval, timeout):
            yield f"nothing is heard of the monitor of {host.name}"
        if lease.status == Status.ACTIVE and (trouble := _trouble(claim)) is not None:
            yield f"the daemon of GPU {gpu.uuid} on {host.name} is {trouble}"


def _trouble(claim: models.ClaimRow) -> str | None:
    """How the daemon of a cGPU fares, if it does not fare well."""
    daemons = (claim.gpu.host.monitor_report or {}).get("daemons", {})
    key = f"{claim.lease_id}-{claim.position}" if claim.daemon_port else f"gpu-{claim.gpu_uuid}"
    state = daemons.get(key.replace("/", "_"), {}).get("state")
    return state if state in TROUBLED else None
