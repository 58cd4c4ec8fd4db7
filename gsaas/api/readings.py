# SPDX-License-Identifier: Apache-2.0
"""Readings as responses contain them: what the cGPUs of a lease did in the last day. They name no GPU and no host."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection

from gsaas.api.times import iso
from gsaas.db import readings as stored
from gsaas.db.readings import Intervals
from gsaas.objects import readings
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.readings import RESOLUTIONS, Point
from gsaas.objects.usage import gpu_hours

_NOTHING = Intervals([], [])


def describe(lease: Lease, intervals: Intervals, now: datetime.datetime) -> dict[str, Any]:
    """Return the readings of *lease* at *now*, from *intervals*, which are all that are stored."""
    return {
        "lease_id": lease.id,
        "idle_since": iso(_idle_since(lease, intervals, now)),
        "series": [
            {
                "seconds": resolution.seconds,
                "points": [
                    _point(point)
                    for point in readings.points(resolution, intervals.cgpus, intervals.paths, now)
                ],
            }
            for resolution in RESOLUTIONS
        ],
    }


def newest(
    connection: Connection, leases: Collection[Lease], now: datetime.datetime
) -> Mapping[str, Intervals]:
    """Return what `summary` needs of *leases*, by id; those that have no readings are left out."""
    active = [lease.id for lease in leases if lease.status == Status.ACTIVE]
    others = [
        lease.id
        for lease in leases
        if lease.status != Status.ACTIVE and lease.claimed_at is not None
    ]
    return {
        **(stored.newest(connection, active, now) if active else {}),
        **(stored.whole(connection, others) if others else {}),
    }


def summary(lease: Lease, found: Mapping[str, Intervals], now: datetime.datetime) -> dict[str, Any]:
    """Return the fields of *lease* that follow from its newest readings at *now*; *found* is what `newest` returned."""
    intervals = found.get(lease.id, _NOTHING)
    minutes = readings.points(RESOLUTIONS[0], intervals.cgpus, intervals.paths, now)
    point = readings.latest(minutes, now)
    return {
        "idle_since": iso(_idle_since(lease, intervals, now)),
        "reading": None if point is None else _point(point),
        "usage": _usage(lease, intervals, now),
    }


def _usage(lease: Lease, intervals: Intervals, now: datetime.datetime) -> dict[str, Any] | None:
    """Return what *lease* has used from its claim on; None if it never had GPUs."""
    until = lease.released_at or now
    hours = gpu_hours(lease.claimed_gpus, lease.claimed_at, until, lease.past_usage)
    if hours is None:
        return None
    use = readings.use_of(intervals.cgpus)
    return {
        "gpu_hours": round(hours, 4),
        "mean_utilisation": _rounded(use.mean_utilisation),
        "peak_utilisation": _rounded(use.peak_utilisation),
        "peak_memory_mb": use.peak_memory_mb,
    }


def _idle_since(
    lease: Lease, intervals: Intervals, now: datetime.datetime
) -> datetime.datetime | None:
    if lease.status != Status.ACTIVE:
        return None
    return readings.idle_since(lease.count, intervals.cgpus, intervals.paths, now)


def _point(point: Point) -> dict[str, Any]:
    path = point.path
    return {
        "at": iso(point.at),
        "cgpus": [
            {
                "index": cgpu.position,
                "utilisation": _rounded(cgpu.utilisation),
                "used_mb": cgpu.used_mb,
            }
            for cgpu in point.cgpus
        ],
        "path": path
        and {
            "sent_bytes_per_second": _rounded(path.sent_bytes_per_second),
            "received_bytes_per_second": _rounded(path.received_bytes_per_second),
            "connections": path.connections,
            "dropped_packets": path.dropped_packets,
        },
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
