# SPDX-License-Identifier: Apache-2.0
"""Which leases do not have all the GPUs that they claimed in working order, and why. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterator

from gsaas.db import hosts
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import ENTITLED, Status

FAILED_DAEMON_STATES = ("down", "unresponsive")
"""States, as monitors report them, of a daemon that has worked before and does not now."""


def reasons(lease: Lease, timeout: float) -> list[str]:
    """Return what is wrong with the GPUs of *lease*, without duplicates; an empty list for most leases.

    A host counts as silent after *timeout* seconds without a report, or after a few of its own report intervals if
    these are longer.
    """
    if lease.status not in ENTITLED:
        return []
    return list(dict.fromkeys(_problems(lease, timeout)))


def _problems(lease: Lease, timeout: float) -> Iterator[str]:
    for claim in lease.claims:
        gpu, host = claim.gpu, claim.gpu.host
        if gpu.withdrawn_reason is not None:
            yield f"GPU {gpu.uuid} on {host.name}: {gpu.withdrawn_reason}"
        if hosts.is_silent(host.monitor_seen_at, host.monitor_interval, timeout):
            yield f"the monitor of {host.name} does not report"
        # Before that the engine still waits for the daemon to start.
        if lease.status == Status.ACTIVE and (state := _failed_daemon_state(claim)) is not None:
            yield f"the daemon of GPU {gpu.uuid} on {host.name} is {state}"


def _failed_daemon_state(claim: Claim) -> str | None:
    """Return the state of the daemon of a cGPU if it has failed, else None."""
    daemons = (claim.gpu.host.monitor_report or {}).get("daemons", {})
    key = f"{claim.lease_id}-{claim.position}" if claim.daemon_port else f"gpu-{claim.gpu_uuid}"
    state = daemons.get(key.replace("/", "_"), {}).get("state")
    return state if state in FAILED_DAEMON_STATES else None
