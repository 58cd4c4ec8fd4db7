# SPDX-License-Identifier: Apache-2.0
"""Valid rows for tests: a test names only the columns that it is about."""

from __future__ import annotations

import datetime
from typing import Any

import sqlalchemy

from gsaas.db.database import Database
from gsaas.db.models import (
    Base,
    ClaimRow,
    GpuRow,
    HostRow,
    LeaseRow,
    ReservationRow,
    ReservedShareRow,
    table_of,
)
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status


def host(name: str = "gpu1", **columns: Any) -> HostRow:
    return HostRow(**{"name": name, "gpu_address": "192.0.2.1", **columns})


def gpu(uuid: str = "GPU-a", **columns: Any) -> GpuRow:
    defaults = {
        "host_name": "gpu1",
        "device_index": 0,
        "model": "NVIDIA A100-PCIE-40GB",
        "memory_mb": 40960,
        "daemon_port": 8308,
    }
    return GpuRow(**{"uuid": uuid, **defaults, **columns})


_LEASE = {
    "project_id": "project-1",
    "user_id": "user-1",
    "name": "training",
    "count": 1,
    "mode": "shared",
    "memory_mb": 2048,
    "locality": "any",
    "remoting": "rcuda",
}


def lease(lease_id: str = "lease-1", **columns: Any) -> LeaseRow:
    held = {"status": "CLAIMED", "policy": "least-load-fit"}
    return LeaseRow(**{"id": lease_id, "has_server": True, **_LEASE, **held, **columns})


def new_lease(lease_id: str = "lease-1", **columns: Any) -> Lease:
    """One that has not been claimed yet."""
    return Lease(**{"id": lease_id, "status": Status.QUEUED, **_LEASE, **columns})


def reservation(reservation_id: str = "reservation-1", **columns: Any) -> ReservationRow:
    defaults = {
        "project_id": "project-1",
        "user_id": "user-1",
        "name": "course",
        "status": "PENDING",
        "cgpus": {"count": 1, "mode": "shared", "memory_mb": 2048, "locality": "any"},
        "start_at": second(1),
        "end_at": second(59),
        "created_at": second(0),
    }
    return ReservationRow(**{"id": reservation_id, **defaults, **columns})


def reserved_share(
    reservation_id: str = "reservation-1", gpu_uuid: str = "GPU-a", **columns: Any
) -> ReservedShareRow:
    defaults = {"position": 0, "memory_mb": 2048, "kept": False}
    return ReservedShareRow(
        **{"reservation_id": reservation_id, "gpu_uuid": gpu_uuid, **defaults, **columns}
    )


def claim(lease_id: str = "lease-1", gpu_uuid: str = "GPU-a", **columns: Any) -> ClaimRow:
    position = columns.get("position", 0)
    defaults = {
        "position": position,
        "memory_mb": 2048,
        "masked_ip": f"169.254.71.{1 + position}",
        "masked_port": 8308,
    }
    return ClaimRow(**{"lease_id": lease_id, "gpu_uuid": gpu_uuid, **defaults, **columns})


def second(number: int) -> datetime.datetime:
    """Return a time: *number* seconds after a start that all tests share."""
    return datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=number)


def insert_as_before(database: Database, *rows: Base) -> None:
    """Insert *rows* into tables of an earlier revision, without the columns that these do not have."""
    with database.engine.begin() as connection:
        there = sqlalchemy.inspect(connection)
        for row in rows:
            model = table_of(type(row))
            names = {column["name"] for column in there.get_columns(model.name)}
            columns = [
                column
                for column in model.columns
                if column.name in names and not _is_left_to_the_database(row, column)
            ]
            table = sqlalchemy.table(
                model.name, *(sqlalchemy.column(each.name, each.type) for each in columns)
            )
            values = {each.name: _value(row, each) for each in columns}
            connection.execute(table.insert().values(values))


def _is_left_to_the_database(row: Base, column: sqlalchemy.Column[Any]) -> bool:
    unset = getattr(row, column.key) is None and column.default is None
    return unset and column.server_default is not None


def _value(row: Base, column: sqlalchemy.Column[Any]) -> Any:
    """Return the value that SQLAlchemy would insert."""
    value = getattr(row, column.key)
    if value is None and column.default is not None:
        value = column.default.arg(None) if column.default.is_callable else column.default.arg
    return value if value is not None else sqlalchemy.null()
