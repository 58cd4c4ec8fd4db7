"""The tables. Constraints here make impossible states impossible, whoever writes.

What a row may say is checked by the database itself: no GPU holds more than its memory, an
exclusively held GPU is held whole, a lease's memory is named in shared mode and only there, a lease
in ERROR has a fault. Code above may have bugs; an over-committed GPU still cannot be stored.

What hangs on a row for certain (a claim's GPU, its host) is read along with it, and so stays
readable after the session. Change a table only together with a new file in `migrations/versions`.
"""

from __future__ import annotations

import datetime
import time
from typing import Any

from oslo_utils import timeutils
from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Float,
    ForeignKey,
    Index,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

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


STORAGE = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}
"""On MariaDB and MySQL: all of Unicode, and text that differs in case differs, as on the others."""


def _set_only(column: str) -> dict[str, Any]:
    """Have an index leave out rows in which *column* is not set, where the database can; writing them is cheaper so."""
    condition = text(f"{column} IS NOT NULL")
    return {"sqlite_where": condition, "postgresql_where": condition}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    __table_args__: Any = STORAGE


class Host(Base):
    """A machine of the cloud: a GPU host if it has GPUs, a compute host if it has an endpoint."""

    __tablename__ = "hosts"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    gpu_address: Mapped[str | None] = mapped_column(String(45))
    """Its address on the GPU network, where its daemons listen; None for a host without GPUs."""
    disabled: Mapped[bool] = mapped_column(default=False)
    """Set by an operator: its GPUs are not offered. Leases that hold them keep them."""
    disabled_reason: Mapped[str | None] = mapped_column(Text)
    forgotten: Mapped[bool] = mapped_column(default=False)
    """Gone for good, by an operator's word: its rows go as soon as no lease claims its GPUs."""
    monitor_seen_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp, index=True)
    """Last report of its gsaas-monitor; None before the first."""
    monitor_report: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """What its gsaas-monitor said last of its daemons and its fence: `gsaas.objects.daemon.DaemonReport.to_dict()`;
    None before the first."""
    wanted_serial: Mapped[int] = mapped_column(BigInteger, default=0)
    """Grows each time its monitor is told what it should hold, so that the monitor knows which of two is newer."""
    monitor_problems: Mapped[list[str]] = mapped_column(JSON, default=list)
    """What its gsaas-monitor says somebody has to mend, in words."""
    monitor_interval: Mapped[float | None] = mapped_column(Float)
    """Seconds after which its gsaas-monitor said it would report again."""

    gpus: Mapped[list[Gpu]] = relationship(back_populates="host", order_by="Gpu.device_index")
    endpoint: Mapped[Endpoint | None] = relationship(back_populates="host")


class Endpoint(Base):
    """The RODVR endpoint of a compute host, and what it said last."""

    __tablename__ = "endpoints"

    host_name: Mapped[str] = mapped_column(ForeignKey("hosts.name"), primary_key=True)
    seen_at: Mapped[datetime.datetime] = mapped_column(Timestamp, default=timeutils.utcnow)
    report: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    """`gsaas.objects.endpoint_report.EndpointReport.to_dict()`: bindings, dropped packets, problems."""
    gpu_address: Mapped[str | None] = mapped_column(String(45))
    """Its host's address on the GPU network, which fences admit; the last that it reported."""

    host: Mapped[Host] = relationship(back_populates="endpoint", lazy="joined", innerjoin=True)


def _first_generation() -> int:
    """Milliseconds since 1970: more than a forgotten GPU had grown to, so its successor shows."""
    return time.time_ns() // 1_000_000


class Gpu(Base):
    """One physical GPU or MIG instance."""

    __tablename__ = "gpus"
    __table_args__ = (
        UniqueConstraint("host_name", "device_index"),
        CheckConstraint("memory_mb > 0", name="memory_positive"),
        CheckConstraint("used_mb >= 0 AND used_mb <= memory_mb", name="never_over_committed"),
        CheckConstraint(
            "exclusive_lease_id IS NULL OR used_mb = memory_mb", name="exclusive_is_whole"
        ),
        CheckConstraint("leases >= 0", name="leases"),
        CheckConstraint("daemon_port BETWEEN 1 AND 65535", name="daemon_port"),
        CheckConstraint(
            "NOT awaits_operator OR withdrawn_reason IS NOT NULL", name="waiting_has_reason"
        ),
        Index("ix_gpus_generation", "generation"),
        STORAGE,
    )

    uuid: Mapped[str] = mapped_column(String(96), primary_key=True)
    """NVML's: `GPU-…` or `MIG-…`."""
    host_name: Mapped[str] = mapped_column(ForeignKey("hosts.name"))
    device_index: Mapped[int]
    """NVML's number on the host, from 0; below 0 for one that is claimed but no longer reported."""
    model: Mapped[str] = mapped_column(Name)
    memory_mb: Mapped[int]
    used_mb: Mapped[int] = mapped_column(default=0)
    """MiB claimed by leases; the sum of its claims."""
    exclusive_lease_id: Mapped[str | None] = mapped_column(ForeignKey("leases.id"))
    """The lease that holds the whole GPU in exclusive mode."""
    leases: Mapped[int] = mapped_column(default=0)
    """Number of leases that claim some of it."""
    given: Mapped[int] = mapped_column(BigInteger, default=0)
    """The generation of the last claim of it; larger is later, 0 never. What is given back leaves it."""
    parent_uuid: Mapped[str | None] = mapped_column(String(96))
    """The GPU that a MIG instance is part of."""
    compute_capability: Mapped[str | None] = mapped_column(String(8))
    """CUDA's, such as 9.0; None if its monitor cannot tell."""
    daemon_port: Mapped[int]
    """TCP port of its daemon at the host's GPU address."""
    disabled: Mapped[bool] = mapped_column(default=False)
    """Set by an operator: it is not offered. Leases that hold it keep it."""
    disabled_reason: Mapped[str | None] = mapped_column(Text)
    withdrawn_reason: Mapped[str | None] = mapped_column(Text)
    """Why it cannot be used, from its monitor; None while it can. It is not offered, and leases that hold it are
    degraded."""
    awaits_operator: Mapped[bool] = mapped_column(default=False)
    """It was withdrawn by an error after which only an operator puts it back on offer."""
    fatal_error_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    """When the last such error was, by the clock of its host: the same one is not held against it twice."""
    generation: Mapped[int] = mapped_column(BigInteger, default=_first_generation)
    """Grows with every change of the row. The count and the sum of all generations together change
    whenever any GPU does, so a cache needs to ask only for those two."""

    host: Mapped[Host] = relationship(back_populates="gpus", lazy="joined", innerjoin=True)


class GpuReading(Base):
    """What the monitor last read of one GPU. Apart from `gpus`, so that reading changes no generation."""

    __tablename__ = "gpu_readings"

    gpu_uuid: Mapped[str] = mapped_column(
        ForeignKey("gpus.uuid", ondelete="CASCADE"), primary_key=True
    )
    at: Mapped[datetime.datetime] = mapped_column(Timestamp)
    used_mb: Mapped[int | None]
    """MiB in use, by whomever."""
    utilisation: Mapped[float | None] = mapped_column(Float)
    """Percent of the time since the reading before in which a kernel ran."""
    mean_utilisation: Mapped[float | None] = mapped_column(Float)
    """Percent, over the window that active policies look at."""
    temperature_c: Mapped[float | None] = mapped_column(Float)
    power_w: Mapped[float | None] = mapped_column(Float)
    processes: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)
    xid_errors: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)


class Lease(Base):
    """*count* cGPUs of equal size held by one consumer. Rows stay when released, as history."""

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
        Index("ix_leases_bound_host", "bound_host", **_set_only("bound_host")),
        Index("uq_leases_server_id", "server_id", unique=True, **_set_only("server_id")),
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
    """MiB per cGPU in shared mode; None in exclusive mode."""
    locality: Mapped[str] = mapped_column(String(16))
    requirements: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    """What else its GPUs must be: `gsaas.objects.request.Request`'s further words."""
    policy: Mapped[str | None] = mapped_column(String(64))
    """The scheduling policy that chose; before that the one asked for, None for the default."""
    remoting: Mapped[str] = mapped_column(String(64))
    """The remoting driver that its environment is for."""
    wanted_host: Mapped[str | None] = mapped_column(Name)
    """The compute host that locality pins the VM to."""
    avoided_hosts: Mapped[list[str]] = mapped_column(JSON, default=list)
    """GPU hosts that a `remote` lease's VM must stay off."""
    has_server: Mapped[bool] = mapped_column(default=True)
    """False: it stands alone, for a consumer that GSaaS did not boot."""
    consumer_host: Mapped[str | None] = mapped_column(Name)
    """Where the consumer of a lease that stands alone says it runs."""
    consumer_uid: Mapped[int | None] = mapped_column(BigInteger)
    """The only user of that host who may use it; None: every one may."""
    consumer_address: Mapped[str | None] = mapped_column(String(15))
    """The only address that its grant may be redeemed from; None: the first that shows it."""
    access: Mapped[str | None] = mapped_column(String(16))
    """How its consumer reaches its GPUs: `gsaas.objects.access.Access`; None until it has some."""
    admitted_address: Mapped[str | None] = mapped_column(String(15))
    """Whom the fences of its GPU hosts were told to let in: where there is something to remove."""
    server_request: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    """The caller's server fields."""
    server_id: Mapped[str | None] = mapped_column(String(36))
    server_host: Mapped[str | None] = mapped_column(Name)
    port_id: Mapped[str | None] = mapped_column(String(36))
    port_tap: Mapped[str | None] = mapped_column(String(15))
    port_mac: Mapped[str | None] = mapped_column(String(17))
    port_ip: Mapped[str | None] = mapped_column(String(15))
    bound_host: Mapped[str | None] = mapped_column(Name)
    """Host whose endpoint was told of the binding: where there is something to remove."""
    fault_step: Mapped[str | None] = mapped_column(String(64))
    fault_message: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime.datetime] = mapped_column(Timestamp, default=timeutils.utcnow)
    updated_at: Mapped[datetime.datetime] = mapped_column(
        Timestamp, default=timeutils.utcnow, onupdate=timeutils.utcnow
    )
    priority: Mapped[int] = mapped_column(default=0)
    """In the queue; more is sooner."""
    queued_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    wait_until: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    """When it gives up waiting in the queue; None: never."""
    waiter_seen_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    """When the client that waits for it was last heard of; None: nobody need, or its answer is known."""
    keepalive: Mapped[int | None]
    """Seconds of silence of its client after which it ends; None: it lasts until somebody ends it."""
    kept_until: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    """When it ends unless its client is heard of; None while it waits, or if it needs no keeping."""
    claimed_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    claimed_mb: Mapped[int | None] = mapped_column(BigInteger)
    """MiB that it claimed in all; stays as history, as `claimed_gpus` does."""
    claimed_gpus: Mapped[float | None] = mapped_column(Float)
    """The same in GPUs: the sum of its shares' parts of theirs."""
    released_at: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    """When its GPUs were given back."""
    driven_by: Mapped[str | None] = mapped_column(Name)
    """The engine that is taking its steps; others leave it alone until `driven_until`."""
    driven_until: Mapped[datetime.datetime | None] = mapped_column(Timestamp)
    timings: Mapped[dict[str, float] | None] = mapped_column(JSON, default=dict)
    """Phase of the launch -> seconds it took; see `gsaas.objects.timings`."""

    claims: Mapped[list[Claim]] = relationship(
        back_populates="lease", order_by="Claim.position", lazy="selectin"
    )
    events: Mapped[list[LeaseEvent]] = relationship(
        order_by="LeaseEvent.id", cascade="all, delete-orphan", lazy="raise"
    )

    def __init__(self, **columns: Any) -> None:
        """Decisions are made about leases that are not stored yet, when defaults of columns are not there."""
        super().__init__(**{"has_server": True, **columns})


class Project(Base):
    """A project of the cloud; its row is what its claims queue up for while its quota is counted."""

    __tablename__ = "projects"

    id: Mapped[str] = mapped_column(Name, primary_key=True)


class Claim(Base):
    """One cGPU: the share of one GPU that one lease holds. Giving it back deletes the row."""

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
            *("daemon_host", "daemon_port"),
            unique=True,
            **_set_only("daemon_port"),
        ),
        {**STORAGE, "sqlite_with_rowid": False},
    )

    lease_id: Mapped[str] = mapped_column(ForeignKey("leases.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    """The cGPU's number in its lease, from 0: the device number the VM sees."""
    gpu_uuid: Mapped[str] = mapped_column(ForeignKey("gpus.uuid"), index=True)
    memory_mb: Mapped[int]
    """MiB claimed; in exclusive mode all the GPU has."""
    masked_ip: Mapped[str | None] = mapped_column(String(15))
    """What its consumer is told; None if that is the daemon's real address, or none is needed."""
    masked_port: Mapped[int | None]
    masked_host: Mapped[str | None] = mapped_column(Name)
    """The host whose programs use the masked address, if they do; None for a VM's, which is its own."""
    daemon_host: Mapped[str | None] = mapped_column(Name)
    """The GPU host, if the cGPU has a daemon of its own; None: the GPU's daemon serves it."""
    daemon_port: Mapped[int | None]
    """TCP port of that daemon."""

    lease: Mapped[Lease] = relationship(back_populates="claims")
    gpu: Mapped[Gpu] = relationship(lazy="joined", innerjoin=True)


class LeaseEvent(Base):
    """What happened to a lease, in order: its story, for whoever is called at night."""

    __tablename__ = "lease_events"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    lease_id: Mapped[str] = mapped_column(ForeignKey("leases.id"), index=True)
    at: Mapped[datetime.datetime] = mapped_column(Timestamp, default=timeutils.utcnow)
    event: Mapped[str] = mapped_column(String(32))
    status: Mapped[str] = mapped_column(String(16))
    """The lease's status after it."""
    detail: Mapped[str | None] = mapped_column(Text)


class Setting(Base):
    """Something an admin changed while the service ran; it goes before the configuration file."""

    __tablename__ = "settings"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[Any] = mapped_column(JSON)
    updated_at: Mapped[datetime.datetime] = mapped_column(
        Timestamp, default=timeutils.utcnow, onupdate=timeutils.utcnow
    )
    updated_by: Mapped[str | None] = mapped_column(Name)
