# SPDX-License-Identifier: Apache-2.0
"""Writes the rows of GPUs and claims when leases claim GPUs or return them."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    BindParameter,
    Case,
    Column,
    Connection,
    Update,
    bindparam,
    case,
    func,
    or_,
    select,
    update,
)
from sqlalchemy import delete as delete_rows

from gsaas.db.models import ClaimRow, GpuRow, HostRow, LeaseRow, change_number, table_of
from gsaas.objects.gpu import Gpu
from gsaas.objects.lifecycle import ENTITLED
from gsaas.objects.placement import Share

_GPUS, _CLAIMS, _LEASES = table_of(GpuRow), table_of(ClaimRow), table_of(LeaseRow)
_HOSTS = table_of(HostRow)

_FIRST_GPU = select(_GPUS.c.uuid).order_by(_GPUS.c.uuid).limit(1).with_for_update()

POOL_COLUMNS = (
    *(_GPUS.c[name] for name in ("uuid", "host_name", "device_index", "memory_mb", "used_mb")),
    *(_GPUS.c.exclusive_lease_id, _GPUS.c.generation, _GPUS.c.disabled),
    _GPUS.c.withdrawn_reason.is_not(None).label("withdrawn"),
    *(_GPUS.c[name] for name in ("model", "compute_capability", "leases", "given", "reserved_mb")),
    _GPUS.c.change_number,
)
"""What a process knows of each GPU that it chooses from."""

_WRITTEN = tuple(
    _GPUS.c[name]
    for name in ("used_mb", "reserved_mb", "leases", "given", "generation", "exclusive_lease_id")
)

AT_ONCE = 32
"""GPUs that one statement writes with different values."""


@functools.cache
def _write(number: int) -> Update:
    """Return the statement that writes as many GPUs: one round trip, instead of one for each."""
    these: list[BindParameter[str]] = [bindparam(f"this{place}") for place in range(number)]

    def of_each(column: Column[Any]) -> Case[Any]:
        """Return the value for *column* of whichever GPU it is."""
        return case(
            *(
                (_GPUS.c.uuid == this, bindparam(f"{column.name}{place}", type_=column.type))
                for place, this in enumerate(these)
            )
        )

    return (
        update(_GPUS)
        .where(_GPUS.c.uuid.in_(these))
        .values(
            change_number=bindparam("change"),
            **{column.name: of_each(column) for column in _WRITTEN},
        )
    )


_THESE = _GPUS.c.uuid.in_(bindparam("these", expanding=True))
"""A statement that is built once with a list for a parameter costs a fraction of one that is built for each list."""
_SELECT = select(*POOL_COLUMNS, _GPUS.c.daemon_port).where(_THESE).order_by(_GPUS.c.uuid)
_LOCK = _SELECT.with_for_update()
_LOCK_FREE = _SELECT.with_for_update(skip_locked=True)
_GPUS_ON = select(_GPUS.c.uuid).where(_GPUS.c.host_name == bindparam("host"))
_DELETE = delete_rows(_CLAIMS).where(_CLAIMS.c.lease_id.in_(bindparam("these", expanding=True)))


def wait_for_claims(connection: Connection) -> None:
    """Lock the row that all claims know, the first one that they would lock in any case.

    Other claims that were overtaken wait for it until this transaction ends.
    """
    connection.execute(_FIRST_GPU)


def lock_gpus(connection: Connection, uuids: Collection[str], *, waits: bool) -> Sequence[Any]:
    """Lock GPUs; return of each the `POOL_COLUMNS`, and the TCP port of its daemon.

    Unless the transaction *waits* for them, those are left out that other transactions have locked.
    """
    these = {"these": sorted(uuids)}
    return connection.execute(_LOCK if waits else _LOCK_FREE, these).all()


def write_gpus(connection: Connection, gpus: Sequence[tuple[Gpu, str | None]]) -> None:
    """Write locked GPUs as they are then, each with the lease that has it exclusively, which is stored already."""
    for first in range(0, len(gpus), AT_ONCE):
        some = gpus[first : first + AT_ONCE]
        values: dict[str, Any] = {"change": change_number(connection)}
        for place, (gpu, holder) in enumerate(some):
            values |= {
                f"this{place}": gpu.uuid,
                f"used_mb{place}": gpu.used_mb,
                f"reserved_mb{place}": gpu.reserved_mb,
                f"leases{place}": gpu.leases,
                f"given{place}": gpu.given,
                f"generation{place}": gpu.generation,
                f"exclusive_lease_id{place}": holder,
            }
        connection.execute(_write(len(some)), values)


def delete(connection: Connection, lease_ids: Collection[str]) -> None:
    """Delete all claims of these leases."""
    if lease_ids:
        connection.execute(_DELETE, {"these": sorted(lease_ids)})


def gpus_on(connection: Connection, host: str) -> list[str]:
    """Return the UUIDs of the GPUs of *host*, for a query of what claims them.

    Asked for both at once, MariaDB looks at every claim of the cloud while its statistics are those of a smaller one.
    """
    return list(connection.scalars(_GPUS_ON, {"host": host}))


def known_by_monitor(connection: Connection, host: str) -> list[str]:
    """Return which newer fields of daemons the monitor of *host* knows; those of earlier releases do not say."""
    report = connection.scalar(select(_HOSTS.c.monitor_report).where(_HOSTS.c.name == host))
    known: list[str] = (report or {}).get("knows", [])
    return known


def masked_ips(connection: Connection, host: str) -> list[str]:
    """Return the masked addresses that consumers on *host* use now."""
    query = select(_CLAIMS.c.masked_ip).where(_CLAIMS.c.masked_host == host)
    return [ip for ip in connection.scalars(query) if ip is not None]


def masked_ips_of(connection: Connection, host: str, project_id: str) -> int:
    """Return how many masked addresses consumers of a project's leases use on *host* now."""
    query = select(func.count()).select_from(_CLAIMS.join(table_of(LeaseRow)))
    query = query.where(_CLAIMS.c.masked_host == host, LeaseRow.project_id == project_id)
    return connection.scalars(query).one()


def lasting(connection: Connection, moment: datetime.datetime) -> dict[str, int]:
    """Return how many MiB of GPUs, by UUID, leases have claimed that do not end by *moment*."""
    query = (
        select(_CLAIMS.c.gpu_uuid, func.sum(_CLAIMS.c.memory_mb))
        .select_from(_CLAIMS.join(_LEASES))
        .where(or_(_LEASES.c.ends_at.is_(None), _LEASES.c.ends_at > moment))
        .group_by(_CLAIMS.c.gpu_uuid)
    )
    return {uuid: int(size) for uuid, size in connection.execute(query)}


def ending(connection: Connection, limit: int) -> list[tuple[datetime.datetime, Share]]:
    """Return what each lease with an end has of GPUs of the pool, and when it ends, the next ones first.

    What a lease has of a reservation is left out: the reservation gets that back.
    """
    query = (
        select(_LEASES.c.ends_at, _CLAIMS.c.gpu_uuid, func.sum(_CLAIMS.c.memory_mb))
        .select_from(_CLAIMS.join(_LEASES))
        .where(
            _LEASES.c.status.in_(ENTITLED),
            _LEASES.c.ends_at.is_not(None),
            _LEASES.c.reservation_id.is_(None),
        )
        .group_by(_LEASES.c.ends_at, _CLAIMS.c.lease_id, _CLAIMS.c.gpu_uuid)
        .order_by(_LEASES.c.ends_at, _CLAIMS.c.lease_id, _CLAIMS.c.gpu_uuid)
        .limit(limit)
    )
    return [(at, Share(uuid, int(size))) for at, uuid, size in connection.execute(query)]


def memory_of(connection: Connection, uuids: Collection[str]) -> dict[str, int]:
    """Return the MiB of GPUs by UUID."""
    rows = connection.execute(_SELECT, {"these": sorted(set(uuids))})
    return {row.uuid: row.memory_mb for row in rows}


def daemon_ports(connection: Connection, host: str) -> list[int]:
    """Return the TCP ports of all daemons on *host*: those of single cGPUs, and those of its GPUs."""
    query = (
        select(_CLAIMS.c.daemon_port)
        .where(_CLAIMS.c.daemon_host == host)
        .union(select(_GPUS.c.daemon_port).where(_GPUS.c.host_name == host))
    )
    return [port for port in connection.scalars(query) if port is not None]
