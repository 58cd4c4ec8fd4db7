# SPDX-License-Identifier: Apache-2.0
"""The tables, and a class of rows for each. Constraints refuse states that must never occur, whichever code writes.

The database itself checks that no more of a GPU is claimed than its memory, that a GPU in exclusive mode is claimed as
a whole, that a lease has a memory size in shared mode and only then, and that a lease in ERROR has a fault. So even a
bug in other code cannot over-commit a GPU.

Classes of rows are used in `gsaas.db` only, except those of hosts, GPUs and endpoints, which the API shows. Outside, a
lease is a value of `gsaas.objects.lease`. Change a table only together with a new file in `migrations/versions`.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Collection
from typing import Any

from oslo_utils import timeutils
from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Connection,
    DateTime,
    Float,
    ForeignKey,
    Index,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
    insert,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from gsaas.db import change_numbers, clock, dialects

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

Name = String(255)
Timestamp = DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
"""UTC, without a time zone in the value; microseconds on every database."""


STORAGE = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4"}
"""On MariaDB and MySQL: all of Unicode. `_collate` says how text is compared there."""


def _set_only(column: str) -> dict[str, Any]:
    """Return options of an index without the rows whose *column* is NULL, where the database can: it is cheaper."""
    condition = text(f"{column} IS NOT NULL")
    return {"sqlite_where": condition, "postgresql_where": condition}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    __table_args__: Any = STORAGE


@event.listens_for(Base.metadata, "before_create")
def _collate(_: MetaData, connection: Connection, *, tables: Collection[Table], **__: Any) -> None:
    """Have MariaDB and MySQL compare text as the other databases do: by all of its characters."""
    if connection.dialect.name == "mysql":
        for table in tables:
            table.kwargs["mysql_collate"] = dialects.exact_collation(connection.dialect)


def table_of(model: type[Base]) -> Table:
    """Return the table of a class of rows, for statements without a session."""
    table = model.__table__
    assert isinstance(table, Table)  # noqa: S101  (a class of rows that is mapped to one)
    return table


class HostRow(Base):
    """A machine of the cloud: a GPU host if it has GPUs, a compute host if it has an endpoint."""

    __tablename__ = "hosts"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    gpu_address: Mapped[str | None] = mapped_column(String(45), index=True)
    """Its address on the GPU network, where its daemons listen; None for a host without GPUs."""
    disabled: Mapped[bool] = mapped_column(default=False)
    """Set by an operator: its GPUs are not offered. Leases that claim them keep them."""
    disabled_reason: Mapped[str | None] = mapped_column(Text)
    forgotten: Mapped[bool] = mapped_column(default=False)
    """An operator says that it is gone for good: its rows are deleted as soon as no lease claims its GPUs."""
    monitor_seen_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp, index=True)
    """Last report of its gsaas-monitor; None before the first."""
    monitor_report: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """The last report of its gsaas-monitor on daemons and fence: `gsaas.objects.daemon.DaemonReport.to_dict()`;
    None before the first."""
    wanted_serial: Mapped[int] = mapped_column(BigInteger, default=0)
    """Grows with each order that an engine sends its agents, so that they know which of two is newer: with each desired
    state for its monitor, and each binding that its endpoint is to install or to remove."""
    monitor_problems: Mapped[list[str]] = mapped_column(JSON, default=list)
    """Problems that an operator has to solve, as its gsaas-monitor reported them: sentences."""
    monitor_interval: Mapped[float | None] = mapped_column(Float)
    """Seconds between two reports of its gsaas-monitor, according to its last report."""
    draining_since: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    """Since when the engines move leases away from its GPUs, for an operator; None: they do not."""
    drain_by: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    """When such a move may cut connections that are open; None: never, except by consent of the lease's owner."""
    drain_waits: Mapped[dict[str, str] | None] = mapped_column(JSON(none_as_null=True))
    """Lease -> why it is still there, as the engines found it last."""

    gpus: Mapped[list[GpuRow]] = relationship(back_populates="host", order_by="GpuRow.device_index")
    endpoint: Mapped[EndpointRow | None] = relationship(back_populates="host")


class EndpointRow(Base):
    """The RODVR endpoint of a compute host, and its last report."""

    __tablename__ = "endpoints"

    host_name: Mapped[str] = mapped_column(ForeignKey("hosts.name"), primary_key=True)
    seen_at: Mapped[datetime.datetime] = mapped_column(Timestamp, default=timeutils.utcnow)
    report: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    """`gsaas.objects.endpoint_report.EndpointReport.to_dict()`: bindings, dropped packets, problems."""
    gpu_address: Mapped[str | None] = mapped_column(String(45), index=True)
    """Its host's address on the GPU network, which fences admit; the last that it reported."""

    host: Mapped[HostRow] = relationship(back_populates="endpoint", lazy="joined", innerjoin=True)


class PoolVersionRow(Base):
    """Random numbers, each of which is replaced when something rare changes; one row."""

    __tablename__ = "pool_versions"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    gpus: Mapped[int] = mapped_column(BigInteger, default=0)
    """The set of GPUs: changes when the row of a GPU is deleted, because a row that is gone has no number."""
    hosts: Mapped[int] = mapped_column(BigInteger, default=0)
    """Which hosts are disabled."""
    endpoints: Mapped[int] = mapped_column(BigInteger, default=0)
    """Which hosts have an endpoint."""
    reservations: Mapped[int] = mapped_column(BigInteger, default=0, server_default=text("0"))
    """Which shares reservations have; whoever places one changes it first, so that these follow each other."""


class GpuWriterRow(Base):
    """A writer of changes of GPUs: `gsaas.db.change_numbers`. Its id is never given out again, even without its row."""

    __tablename__ = "gpu_writers"
    __table_args__ = {**STORAGE, "sqlite_autoincrement": True}

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    created_at: Mapped[datetime.datetime] = mapped_column(Timestamp, default=timeutils.utcnow)


def _new_writer(connection: Connection) -> int:
    inserted = connection.execute(insert(GpuWriterRow).values(created_at=clock.now(connection)))
    key = inserted.inserted_primary_key
    assert key is not None  # noqa: S101  (one row was inserted)
    return int(key[0])


def change_number(connection: Connection) -> int:
    """Return the number of the changes of GPUs that the transaction of *connection* makes."""
    return change_numbers.number(connection, _new_writer)


def _change_number(context: Any) -> int:
    return change_number(context.connection)


def _first_generation() -> int:
    """Return milliseconds since 1970: larger than the generation of a deleted row, which no claim may take for it."""
    return time.time_ns() // 1_000_000


class GpuRow(Base):
    """One physical GPU or MIG instance."""

    __tablename__ = "gpus"
    __table_args__ = (
        UniqueConstraint("host_name", "device_index"),
        CheckConstraint("memory_mb > 0", name="memory_positive"),
        CheckConstraint("used_mb >= 0 AND used_mb <= memory_mb", name="never_over_committed"),
        CheckConstraint(
            "exclusive_lease_id IS NULL OR used_mb = memory_mb", name="exclusive_is_whole"
        ),
        CheckConstraint(
            "reserved_mb >= 0 AND (reserved_mb = 0 OR used_mb + reserved_mb <= memory_mb)",
            name="never_over_reserved",
        ),
        CheckConstraint("leases >= 0", name="leases"),
        CheckConstraint("daemon_port BETWEEN 1 AND 65535", name="daemon_port"),
        CheckConstraint(
            "NOT awaits_operator OR withdrawn_reason IS NOT NULL", name="waiting_has_reason"
        ),
        Index("ix_gpus_change_number", "change_number"),
        STORAGE,
    )

    uuid: Mapped[str] = mapped_column(String(96), primary_key=True)
    """The UUID that NVML reports: `GPU-…` or `MIG-…`."""
    host_name: Mapped[str] = mapped_column(ForeignKey("hosts.name"))
    device_index: Mapped[int]
    """NVML's number on the host, from 0; below 0 for one that is claimed but no longer reported."""
    model: Mapped[str] = mapped_column(Name)
    memory_mb: Mapped[int]
    used_mb: Mapped[int] = mapped_column(default=0)
    """MiB claimed by leases; the sum of its claims."""
    exclusive_lease_id: Mapped[str | None] = mapped_column(ForeignKey("leases.id"))
    """The lease that claims the whole GPU in exclusive mode."""
    leases: Mapped[int] = mapped_column(default=0)
    """Number of leases that claim some of it."""
    given: Mapped[int] = mapped_column(BigInteger, default=0)
    """The generation of its last claim; a larger one is later, 0 means never claimed. Returns do not change it."""
    parent_uuid: Mapped[str | None] = mapped_column(String(96))
    """The GPU that a MIG instance is part of."""
    compute_capability: Mapped[str | None] = mapped_column(String(8))
    """CUDA's, such as 9.0; None if its monitor does not know it."""
    daemon_port: Mapped[int]
    """TCP port of its own daemon at the GPU address of its host."""
    disabled: Mapped[bool] = mapped_column(default=False)
    """Set by an operator: it is not offered. Leases that claim it keep it."""
    disabled_reason: Mapped[str | None] = mapped_column(Text)
    withdrawn_reason: Mapped[str | None] = mapped_column(Text)
    """Why it cannot be used, from its monitor; None while it can. It is not offered, and leases that claim it are
    degraded."""
    awaits_operator: Mapped[bool] = mapped_column(default=False)
    """It was withdrawn after an error, and stays so until an operator enables it."""
    fatal_error_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    """Time of the last such error, by the clock of its host, so that the same error withdraws the GPU only once."""
    generation: Mapped[int] = mapped_column(BigInteger, default=_first_generation)
    """Grows with every change of the row that matters to claims: a claim succeeds only if it is as it was."""
    change_number: Mapped[int] = mapped_column(
        BigInteger, default=_change_number, onupdate=_change_number, server_default="0"
    )
    """That of the row's last change, by which caches find it: `gsaas.objects.change_numbers`. Statements of SQLAlchemy
    set it by themselves; 0 has a row that did not change since before there were such numbers."""
    reserved_mb: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    """MiB kept for reservations, and claimed by none of their leases."""

    host: Mapped[HostRow] = relationship(back_populates="gpus", lazy="joined", innerjoin=True)


class GpuReadingRow(Base):
    """The last reading of one GPU. In a table of its own, so that readings change no generation."""

    __tablename__ = "gpu_readings"

    gpu_uuid: Mapped[str] = mapped_column(
        ForeignKey("gpus.uuid", ondelete="CASCADE"), primary_key=True
    )
    at: Mapped[datetime.datetime] = mapped_column(Timestamp)
    used_mb: Mapped[int | None]
    """MiB in use, by any process."""
    utilisation: Mapped[float | None] = mapped_column(Float)
    """Percent of the time since the reading before in which a kernel ran."""
    mean_utilisation: Mapped[float | None] = mapped_column(Float)
    """Percent, over `[monitor]utilisation_window`; some policies use it."""
    temperature_c: Mapped[float | None] = mapped_column(Float)
    power_w: Mapped[float | None] = mapped_column(Float)
    processes: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    xid_errors: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)


class CgpuReadingRow(Base):
    """What one cGPU of a lease did in one interval: `gsaas.objects.readings`. A table that refers to no other: to write
    it takes no lock of a lease."""

    __tablename__ = "cgpu_readings"
    __table_args__ = (Index("ix_cgpu_readings_resolution_at", "resolution", "at"), STORAGE)

    lease_id: Mapped[str] = mapped_column(String(36), primary_key=True)
    resolution: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Seconds of the interval; 0: it is as long as the life of the cGPU."""
    slot: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """The intervals of one resolution take turns in their slots, whose number bounds that of the rows."""
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(BigInteger)
    """Which interval it is, counted from 1970."""
    at: Mapped[datetime.datetime] = mapped_column(Timestamp)
    """The last reading."""
    samples: Mapped[int]
    """The readings with a utilisation."""
    utilisation_sum: Mapped[float] = mapped_column(Float)
    """Their sum, percent."""
    used_mb: Mapped[int | None]
    """MiB, the most of all readings."""
    busy_at: Mapped[datetime.datetime] = mapped_column(Timestamp)
    """The last reading that found it in use, or could not tell."""
    utilisation_max: Mapped[float | None] = mapped_column(Float)
    """The highest reading, percent. Processes of earlier releases write rows without it."""


class PathReadingRow(Base):
    """The counters of the masked path of a lease at the end of one interval, in the same way as `CgpuReadingRow`."""

    __tablename__ = "path_readings"

    lease_id: Mapped[str] = mapped_column(String(36), primary_key=True)
    resolution: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    slot: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(BigInteger)
    at: Mapped[datetime.datetime] = mapped_column(Timestamp, index=True)
    sent_bytes: Mapped[int] = mapped_column(BigInteger)
    received_bytes: Mapped[int] = mapped_column(BigInteger)
    connections: Mapped[int] = mapped_column(BigInteger)
    """Those that were open."""
    dropped_packets: Mapped[int] = mapped_column(BigInteger)
    busy_at: Mapped[datetime.datetime] = mapped_column(Timestamp)
    """The last report after which the path had carried something."""


class DisputedGpuRow(Base):
    """A host reports a GPU that another host has, which keeps it until an operator consents to the move."""

    __tablename__ = "disputed_gpus"

    gpu_uuid: Mapped[str] = mapped_column(
        ForeignKey("gpus.uuid", ondelete="CASCADE"), primary_key=True
    )
    host_name: Mapped[str] = mapped_column(
        ForeignKey("hosts.name", ondelete="CASCADE"), primary_key=True, index=True
    )
    """The host that reports it, and does not have it."""
    since: Mapped[datetime.datetime] = mapped_column(Timestamp, default=timeutils.utcnow)


class LeaseRow(Base):
    """A lease: `gsaas.objects.lease.Lease`. Rows of released leases stay as history until they are purged."""

    __tablename__ = "leases"
    __table_args__ = (
        CheckConstraint(
            "status IN"
            " ('QUEUED', 'CLAIMED', 'BOOTING', 'ACTIVE', 'RELEASING', 'RELEASED', 'ERROR')",
            name="status",
        ),
        CheckConstraint("count > 0", name="count_positive"),
        CheckConstraint(
            # A check that is neither true nor false passes: `memory_mb > 0` alone lets NULL in.
            "(mode = 'shared' AND memory_mb IS NOT NULL AND memory_mb > 0)"
            " OR (mode = 'exclusive' AND memory_mb IS NULL)",
            name="memory_iff_shared",
        ),
        CheckConstraint("locality IN ('any', 'local', 'remote')", name="locality"),
        CheckConstraint("status <> 'ERROR' OR fault_message IS NOT NULL", name="error_has_fault"),
        CheckConstraint(
            "status <> 'ACTIVE' OR server_id IS NOT NULL OR NOT has_server",
            name="active_has_server",
        ),
        CheckConstraint("has_server OR server_id IS NULL", name="standalone_has_no_server"),
        CheckConstraint(
            "status NOT IN ('CLAIMED', 'BOOTING', 'ACTIVE') OR policy IS NOT NULL",
            name="policy_chose",
        ),
        CheckConstraint("access IN ('masked', 'direct', 'native')", name="access"),
        CheckConstraint("status <> 'QUEUED' OR queued_at IS NOT NULL", name="queued_has_time"),
        CheckConstraint(
            "status <> 'RELEASED' OR released_at IS NOT NULL", name="released_has_time"
        ),
        Index("ix_leases_status_created", "status", "created_at", "id"),
        Index("ix_leases_queue", "status", "priority", "queued_at", "id", **_set_only("queued_at")),
        Index("ix_leases_project_created", "project_id", "status", "created_at", "id"),
        Index("ix_leases_updated", "updated_at", "id"),
        Index(
            "ix_leases_usage",
            *("project_id", "released_at", "claimed_at", "claimed_gpus", "claimed_mb"),
            **_set_only("released_at"),
        ),
        Index("ix_leases_bound_host", "bound_host", **_set_only("bound_host")),
        Index("ix_leases_moving", "moving", **_set_only("moving")),
        Index("ix_leases_usage_changed_at", "usage_changed_at", **_set_only("usage_changed_at")),
        Index("uq_leases_server_id", "server_id", unique=True, **_set_only("server_id")),
        Index("uq_leases_request_key", "request_key", unique=True, **_set_only("request_key")),
        Index(
            "uq_leases_plain_server_id",
            "plain_server_id",
            unique=True,
            **_set_only("plain_server_id"),
        ),
        STORAGE,
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    project_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Name)
    status: Mapped[str] = mapped_column(String(16))
    count: Mapped[int]
    mode: Mapped[str] = mapped_column(String(16))
    memory_mb: Mapped[int | None]
    locality: Mapped[str] = mapped_column(String(16))
    requirements: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    policy: Mapped[str | None] = mapped_column(String(64))
    remoting: Mapped[str] = mapped_column(String(64))
    wanted_host: Mapped[str | None] = mapped_column(Name)
    avoided_hosts: Mapped[list[str]] = mapped_column(JSON, default=list)
    has_server: Mapped[bool] = mapped_column(default=True)
    consumer_host: Mapped[str | None] = mapped_column(Name)
    consumer_uid: Mapped[int | None] = mapped_column(BigInteger)
    consumer_address: Mapped[str | None] = mapped_column(String(15))
    access: Mapped[str | None] = mapped_column(String(16))
    admitted_address: Mapped[str | None] = mapped_column(String(15))
    server_request: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    server_id: Mapped[str | None] = mapped_column(String(36))
    server_host: Mapped[str | None] = mapped_column(Name)
    port_id: Mapped[str | None] = mapped_column(String(36))
    port_tap: Mapped[str | None] = mapped_column(String(15))
    port_mac: Mapped[str | None] = mapped_column(String(17))
    port_ip: Mapped[str | None] = mapped_column(String(15))
    bound_host: Mapped[str | None] = mapped_column(Name)
    fault_step: Mapped[str | None] = mapped_column(String(64))
    fault_message: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime.datetime] = mapped_column(Timestamp, default=timeutils.utcnow)
    updated_at: Mapped[datetime.datetime] = mapped_column(
        Timestamp, default=timeutils.utcnow, onupdate=timeutils.utcnow
    )
    priority: Mapped[int] = mapped_column(default=0)
    queued_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    wait_until: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    waiter_seen_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    keepalive: Mapped[int | None]
    kept_until: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    claimed_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    claimed_mb: Mapped[int | None] = mapped_column(BigInteger)
    claimed_gpus: Mapped[float | None] = mapped_column(Float)
    released_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    driven_by: Mapped[str | None] = mapped_column(Name)
    driven_until: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    timings: Mapped[dict[str, float] | None] = mapped_column(JSON, default=dict)
    request_key: Mapped[str | None] = mapped_column(String(64))
    request_digest: Mapped[str | None] = mapped_column(String(64))
    plain_server_id: Mapped[str | None] = mapped_column(String(36))
    reclaim_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    reservation_id: Mapped[str | None] = mapped_column(String(36))
    port_other_ips: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    duration: Mapped[int | None]
    ends_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    warned_end: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    claimed_models: Mapped[str | None] = mapped_column(Text)
    moving: Mapped[str | None] = mapped_column(String(16))
    move_kind: Mapped[str | None] = mapped_column(String(16))
    moving_since: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    movable: Mapped[str | None] = mapped_column(String(16))
    usage_changed_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    past_usage: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON(none_as_null=True))

    claims: Mapped[list[ClaimRow]] = relationship(
        back_populates="lease", order_by="ClaimRow.position", lazy="selectin"
    )
    events: Mapped[list[LeaseEventRow]] = relationship(
        order_by="LeaseEventRow.id", cascade="all, delete-orphan", lazy="raise"
    )


class ReservationRow(Base):
    """A reservation: `gsaas.objects.reservation.Reservation`."""

    __tablename__ = "reservations"
    __table_args__ = (
        CheckConstraint("status IN ('PENDING', 'ACTIVE', 'ENDED', 'CANCELLED')", name="status"),
        CheckConstraint("start_at < end_at", name="begins_before_its_end"),
        Index("ix_reservations_project_created", "project_id", "status", "created_at", "id"),
        Index("ix_reservations_status_end", "status", "end_at"),
        STORAGE,
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    project_id: Mapped[str] = mapped_column(Name)
    user_id: Mapped[str] = mapped_column(Name)
    name: Mapped[str] = mapped_column(Name)
    status: Mapped[str] = mapped_column(String(16))
    cgpus: Mapped[dict[str, Any]] = mapped_column(JSON)
    start_at: Mapped[datetime.datetime] = mapped_column(Timestamp)
    end_at: Mapped[datetime.datetime] = mapped_column(Timestamp)
    created_at: Mapped[datetime.datetime] = mapped_column(Timestamp)


class ReservedShareRow(Base):
    """One cGPU of a reservation. It does not keep the row of its GPU, which may go before the reservation begins."""

    __tablename__ = "reserved_shares"
    __table_args__ = (
        CheckConstraint("memory_mb > 0", name="memory_positive"),
        CheckConstraint("kept OR lease_id IS NULL", name="claimed_is_kept"),
        Index("ix_reserved_shares_lease_id", "lease_id", **_set_only("lease_id")),
        STORAGE,
    )

    reservation_id: Mapped[str] = mapped_column(ForeignKey("reservations.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    gpu_uuid: Mapped[str] = mapped_column(String(96))
    memory_mb: Mapped[int]
    kept: Mapped[bool] = mapped_column(default=False)
    lease_id: Mapped[str | None] = mapped_column(String(36))


class ProjectRow(Base):
    """A project of the cloud. Its claims change its row while its quota is counted, so that they follow each other."""

    __tablename__ = "projects"

    id: Mapped[str] = mapped_column(Name, primary_key=True)
    serial: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    """Grows with each of them; processes of earlier releases insert rows without it."""


class ClaimRow(Base):
    """One cGPU: the share of one GPU that one lease claims: `gsaas.objects.lease.Claim`. A return deletes the row.

    A cGPU that moves has two rows: the one of `Lease.others` has the position -1 - n for cGPU n. So one index keeps the
    ports of all daemons apart, and all that is claimed of a GPU is in one table.
    """

    __tablename__ = "claims"
    __table_args__ = (
        CheckConstraint("memory_mb > 0", name="memory_positive"),
        CheckConstraint("masked_port BETWEEN 1 AND 65535", name="masked_port"),
        CheckConstraint("daemon_port BETWEEN 1 AND 65535", name="daemon_port"),
        Index(
            "uq_claims_masked",
            *("lease_id", "masked_ip", "masked_port"),
            unique=True,
            **_set_only("masked_ip"),
        ),
        Index(
            "uq_claims_masked_host",
            *("masked_host", "masked_ip", "masked_port"),
            unique=True,
            **_set_only("masked_host"),
        ),
        Index(
            "uq_claims_daemon",
            *("daemon_host", "daemon_port", "daemon_device"),
            unique=True,
            **_set_only("daemon_port"),
        ),
        {**STORAGE, "sqlite_with_rowid": False},
    )

    lease_id: Mapped[str] = mapped_column(ForeignKey("leases.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    gpu_uuid: Mapped[str] = mapped_column(ForeignKey("gpus.uuid"), index=True)
    memory_mb: Mapped[int]
    masked_ip: Mapped[str | None] = mapped_column(String(15))
    masked_port: Mapped[int | None]
    masked_host: Mapped[str | None] = mapped_column(Name)
    daemon_host: Mapped[str | None] = mapped_column(Name)
    daemon_port: Mapped[int | None]
    daemon_device: Mapped[int] = mapped_column(server_default=text("0"))
    """Processes of earlier releases insert rows without it."""
    daemon_turn: Mapped[int] = mapped_column(server_default=text("0"))

    lease: Mapped[LeaseRow] = relationship(back_populates="claims")
    gpu: Mapped[GpuRow] = relationship(lazy="joined", innerjoin=True)


class LeaseEventRow(Base):
    """An event in the life of a lease, with which operators look for the cause of a problem."""

    __tablename__ = "lease_events"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    lease_id: Mapped[str] = mapped_column(ForeignKey("leases.id"), index=True)
    at: Mapped[datetime.datetime] = mapped_column(Timestamp, default=timeutils.utcnow)
    event: Mapped[str] = mapped_column(String(32))
    status: Mapped[str] = mapped_column(String(16))
    """The lease's status after it."""
    detail: Mapped[str | None] = mapped_column(Text)


class ProcessRow(Base):
    """An API or engine that runs, or ran lately. Several processes of one program on one host have one row."""

    __tablename__ = "processes"

    program: Mapped[str] = mapped_column(String(64), primary_key=True)
    host: Mapped[str] = mapped_column(Name, primary_key=True)
    release: Mapped[str] = mapped_column(String(64))
    seen_at: Mapped[datetime.datetime] = mapped_column(Timestamp)


class SettingRow(Base):
    """A setting that an admin changed while the service ran; it overrides the configuration file."""

    __tablename__ = "settings"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[Any] = mapped_column(JSON)
    updated_at: Mapped[datetime.datetime] = mapped_column(
        Timestamp, default=timeutils.utcnow, onupdate=timeutils.utcnow
    )
    updated_by: Mapped[str | None] = mapped_column(Name)
