# SPDX-License-Identifier: Apache-2.0
"""The hosts, GPUs and leases of a fleet, as rows of the database: as if they had been reported and launched before."""

from __future__ import annotations

import datetime
import itertools
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from oslo_utils import timeutils
from sqlalchemy import insert, select

from bench.fleets.agents import FIRST_PORT, MEMORY_MB, gpu_address, gpus_of, host_name
from gsaas.db.database import Database
from gsaas.db.models import Base, ClaimRow, EndpointRow, GpuRow, HostRow, LeaseEventRow, LeaseRow
from gsaas.objects.access import Access
from gsaas.objects.lifecycle import Event, Status

SHARE_MB = 1024
LONG_AGO = datetime.datetime(2026, 1, 1)
PROJECTS = 100
AT_ONCE = 2000
"""Rows of one statement."""


def fill(database: Database, hosts: int, gpus: int, leases: int) -> None:
    """Insert *hosts* hosts with *gpus* GPUs each and an endpoint, and *leases* leases.

    Each lease has a share of one GPU. Its program runs on the host after that of the GPU, and reaches it through the
    endpoint there.
    """
    names = [host_name(number) for number in range(hosts)]
    infos = {number: gpus_of(number, gpus) for number in range(hosts)}
    places = list(itertools.islice(_places(hosts, gpus), leases))
    used = Counter(places)
    _insert(
        database,
        HostRow,
        [
            {"name": name, "gpu_address": gpu_address(number), "monitor_seen_at": LONG_AGO}
            for number, name in enumerate(names)
        ],
    )
    _insert(
        database,
        EndpointRow,
        [
            {"host_name": name, "gpu_address": gpu_address(number), "seen_at": LONG_AGO}
            for number, name in enumerate(names)
        ],
    )
    _insert(
        database,
        GpuRow,
        [
            {
                "uuid": gpu.uuid,
                "host_name": names[number],
                "device_index": gpu.device_index,
                "model": gpu.model,
                "memory_mb": MEMORY_MB,
                "daemon_port": FIRST_PORT + gpu.device_index,
                "used_mb": used[number, gpu.device_index] * SHARE_MB,
                "leases": used[number, gpu.device_index],
            }
            for number in range(hosts)
            for gpu in infos[number]
        ],
    )
    given = [str(uuid.uuid4()) for _ in places]
    consumers = [names[(number + 1) % hosts] for number, _ in places]
    addresses = _masked_addresses(consumers)
    _insert(
        database,
        LeaseRow,
        [
            _lease(lease_id, place, consumer)
            for place, (lease_id, consumer) in enumerate(zip(given, consumers, strict=True))
        ],
    )
    _insert(
        database,
        ClaimRow,
        [
            {
                "lease_id": lease_id,
                "position": 0,
                "gpu_uuid": infos[number][index].uuid,
                "memory_mb": SHARE_MB,
                "masked_ip": address,
                "masked_port": FIRST_PORT,
                "masked_host": consumer,
            }
            for lease_id, (number, index), consumer, address in zip(
                given, places, consumers, addresses, strict=True
            )
        ],
    )
    _insert(
        database,
        LeaseEventRow,
        [
            {"lease_id": lease_id, "event": event, "status": status}
            for lease_id in given
            for event, status in (
                (Event.CLAIM, Status.CLAIMED),
                (Event.ACTIVATE, Status.ACTIVE),
            )
        ],
    )


def reported_since(database: Database, moment: datetime.datetime) -> tuple[int, int, int]:
    """Return how many monitors and endpoints have reported since *moment*, and the daemons of how many hosts ever."""
    with database.reading() as connection:
        monitors = connection.scalars(
            select(HostRow.name).where(HostRow.monitor_seen_at > moment)
        ).all()
        endpoints = connection.scalars(
            select(EndpointRow.host_name).where(EndpointRow.seen_at > moment)
        ).all()
        daemons = connection.scalars(
            select(HostRow.name).where(HostRow.monitor_report.is_not(None))
        ).all()
    return len(monitors), len(endpoints), len(daemons)


def _places(hosts: int, gpus: int) -> Iterator[tuple[int, int]]:
    """Yield host and index of one GPU after the other, again and again."""
    return itertools.cycle((number, index) for index in range(gpus) for number in range(hosts))


def _masked_addresses(consumers: Sequence[str]) -> list[str]:
    """Return a masked address for each lease, by the host of its program; those of one host differ."""
    counted: Counter[str] = Counter()
    addresses = []
    for host in consumers:
        counted[host] += 1
        addresses.append(f"169.254.{72 + counted[host] // 256}.{counted[host] % 256}")
    return addresses


def _lease(lease_id: str, number: int, consumer: str) -> dict[str, Any]:
    now = timeutils.utcnow()
    return {
        "id": lease_id,
        "project_id": f"project-{number % PROJECTS}",
        "user_id": "user-1",
        "name": f"lease-{number}",
        "status": Status.ACTIVE,
        "count": 1,
        "mode": "shared",
        "memory_mb": SHARE_MB,
        "locality": "any",
        "policy": "least-load-fit",
        "remoting": "rcuda",
        "has_server": False,
        "consumer_host": consumer,
        "access": Access.MASKED,
        "port_id": lease_id,
        "bound_host": consumer,
        "claimed_at": now,
        "claimed_mb": SHARE_MB,
        "claimed_gpus": SHARE_MB / MEMORY_MB,
    }


def _insert(database: Database, model: type[Base], rows: Sequence[dict[str, Any]]) -> None:
    for first in range(0, len(rows), AT_ONCE):
        with database.writing() as connection:
            connection.execute(insert(model), rows[first : first + AT_ONCE])
