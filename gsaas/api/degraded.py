# SPDX-License-Identifier: Apache-2.0
"""Which leases and reservations do not have all their GPUs in working order, and why. Pure: no I/O."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from gsaas.db import hosts
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import ENTITLED, Status
from gsaas.objects.move import Stage
from gsaas.objects.reservation import LIVE, Reservation

DOWN = "down"
MOVE_IS_LATE = datetime.timedelta(minutes=1)
"""How long after its beginning a move counts as late whose cGPUs have been switched."""
FAILED_DAEMON_STATES = (DOWN, "unresponsive")
"""States, as monitors report them, of a daemon that does not work and should."""


def reasons(lease: Lease, timeout: float, now: datetime.datetime) -> list[str]:
    """Return what is wrong with the GPUs of *lease*, without duplicates; an empty list for most leases.

    A host counts as silent *now*, by the clock of the database, after *timeout* seconds without a report, or
    after a few of its own report intervals if these are longer.
    """
    if lease.status not in ENTITLED:
        return []
    return list(dict.fromkeys(_problems(lease, timeout, now)))


def reasons_of_reservation(
    reservation: Reservation, gpus: Mapping[str, Any], timeout: float, now: datetime.datetime
) -> list[str]:
    """Return why shares of *reservation* have to move to other GPUs, which the engine does once these have room.

    *gpus* are rows of `reservations.gpus_of`; *timeout* and *now* are as for `reasons`. What its leases have stays.
    """
    if reservation.status not in LIVE:
        return []
    uuids = dict.fromkeys(share.gpu_uuid for share in reservation.shares if share.lease_id is None)
    found = ((uuid, _out_of_service(gpus.get(uuid), timeout, now)) for uuid in uuids)
    return [f"GPU {uuid}{reason}" for uuid, reason in found if reason is not None]


def _out_of_service(gpu: Any, timeout: float, now: datetime.datetime) -> str | None:
    """Return why no lease gets a GPU; None for one that is in service."""
    if gpu is None:
        return " is gone"
    if gpu.withdrawn_reason is not None:
        return f" on {gpu.host}: {gpu.withdrawn_reason}"
    if gpu.disabled:
        return f" on {gpu.host} is disabled"
    if gpu.host_disabled:
        return f": its host {gpu.host} is disabled"
    if hosts.is_silent(gpu.monitor_seen_at, gpu.monitor_interval, timeout, now):
        return f": the monitor of {gpu.host} does not report"
    return None


def _problems(lease: Lease, timeout: float, now: datetime.datetime) -> Iterator[str]:
    for claim in lease.claims:
        gpu, host = claim.gpu, claim.gpu.host
        if gpu.withdrawn_reason is not None:
            yield f"GPU {gpu.uuid} on {host.name}: {gpu.withdrawn_reason}"
        if hosts.is_silent(host.monitor_seen_at, host.monitor_interval, timeout, now):
            yield f"the monitor of {host.name} does not report"
        if (state := _failed_daemon_state(claim, lease.status == Status.ACTIVE)) is not None:
            yield f"the daemon of GPU {gpu.uuid} on {host.name} is {state}"
    if (late := _late_move(lease, now)) is not None:
        yield late


def _late_move(lease: Lease, now: datetime.datetime) -> str | None:
    """Return what a move of *lease* waits for whose cGPUs have been switched; None if it does not wait long."""
    if lease.moving_since is None or now - lease.moving_since < MOVE_IS_LATE:
        return None
    if lease.moving == Stage.SWITCHED:
        return (
            f"its move is not complete: the endpoint of {lease.bound_host} has not confirmed that addresses lead to "
            "its new GPUs, so the former ones are kept"
        )
    if lease.moving == Stage.ENDING:
        hosts = sorted({claim.gpu.host.name for claim in lease.others})
        return f"its move is not complete: {' and '.join(hosts)} did not confirm that GPUs there are left"
    return None


def _failed_daemon_state(claim: Claim, was_healthy: bool) -> str | None:
    """Return the state of the daemon of a cGPU if it has failed, with the reason if that is known; else None.

    Unless it *was_healthy*, one that does not answer yet has not failed: the engine waits for it.
    """
    daemons = (claim.gpu.host.monitor_report or {}).get("daemons", {})
    status = daemons.get(claim.daemon_key, {})
    state: str | None = status.get("state")
    if state not in FAILED_DAEMON_STATES or (state != DOWN and not was_healthy):
        return None
    return f"{state}: {status['detail']}" if status.get("detail") else state
