# SPDX-License-Identifier: Apache-2.0
"""Makes readings of leases from what hosts report, as far as these may be believed.

A host may lie. It is believed about the cGPUs that the database says are on its own GPUs, and about the bindings that
it was sent, and nothing else that it reports becomes a reading.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gsaas.db import clock, readings
from gsaas.db.database import Database, retried
from gsaas.db.readings import CgpuReading, ClaimedCgpu, PathReading
from gsaas.objects.gpu_report import Loads

_ALLOWANCE = 5.0
"""Seconds that a report may be under way."""


@retried
def store_loads(database: Database, host: str, loads: Loads) -> None:
    """Add what the monitor of *host* measured to the readings of the leases that claim its GPUs."""
    with database.writing() as connection:
        now = clock.now(connection)
        claimed = readings.claimed_on(connection, host)
        readings.add_cgpus(connection, of_cgpus(loads, claimed, now), now)


@retried
def store_traffic(
    database: Database,
    report: Mapping[str, Any],
    traffic: Mapping[str, Any],
    bound: Iterable[tuple[str, str | None, str]],
) -> None:
    """Add the *traffic* that an endpoint reported, with the drops in its *report*, to the readings of its leases.

    *bound* are the leases with a binding there: id, port, status.
    """
    found = of_paths(report, traffic, bound)
    if found:
        with database.writing() as connection:
            readings.add_paths(connection, found, clock.now(connection))


def of_cgpus(
    loads: Loads, claimed: Collection[ClaimedCgpu], now: datetime.datetime
) -> list[CgpuReading]:
    """Return the readings of the cGPUs *claimed* on a host that reports *loads*; cGPUs without any value are left out.

    What is not known of a cGPU by itself is that of its whole GPU, if this is the only claim on it and not a new one.
    """
    own = {
        (load.lease_id, load.position, load.gpu_uuid): load
        for load in loads.of
        if load.lease_id is not None
    }
    whole = {load.gpu_uuid: load for load in loads.of if load.lease_id is None}
    claims_of: dict[str, int] = {}
    for cgpu in claimed:
        claims_of[cgpu.gpu_uuid] = claims_of.get(cgpu.gpu_uuid, 0) + 1
    measured_since = now - datetime.timedelta(seconds=loads.seconds + _ALLOWANCE)
    found = []
    for cgpu in claimed:
        if cgpu.position < 0:
            continue
        load = own.get((cgpu.lease_id, cgpu.position, cgpu.gpu_uuid))
        utilisation, used_mb = (None, None) if load is None else (load.utilisation, load.used_mb)
        is_alone = claims_of[cgpu.gpu_uuid] == 1
        if is_alone and cgpu.claimed_at is not None and cgpu.claimed_at < measured_since:
            gpu = whole.get(cgpu.gpu_uuid)
            if gpu is not None:
                utilisation = gpu.utilisation if utilisation is None else utilisation
                used_mb = gpu.used_mb if used_mb is None else used_mb
        if utilisation is not None or used_mb is not None:
            found.append(CgpuReading(cgpu.lease_id, cgpu.position, utilisation, used_mb))
    return found


def of_paths(
    report: Mapping[str, Any],
    traffic: Mapping[str, Any],
    bound: Iterable[tuple[str, str | None, str]],
) -> list[PathReading]:
    """Return the readings of the paths of the leases *bound* to a host, from its *report* and its *traffic*."""
    found = []
    for lease_id, port_id, _status in bound:
        binding = report["bindings"].get(port_id)
        carried = traffic.get(port_id) if port_id is not None else None
        if binding is not None and carried is not None:
            found.append(
                PathReading(
                    lease_id,
                    carried["sent"],
                    carried["received"],
                    carried["connections"],
                    sum(binding.get("dropped_packets", {}).values()),
                )
            )
    return found
