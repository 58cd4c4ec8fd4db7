# SPDX-License-Identifier: Apache-2.0
"""Every table."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None

NAME = sa.String(255)
TIMESTAMP = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
STORAGE: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def set_only(column: str) -> dict[str, Any]:
    condition = sa.text(f"{column} IS NOT NULL")
    return {"sqlite_where": condition, "postgresql_where": condition}


def upgrade() -> None:
    op.create_table(
        "hosts",
        sa.Column("name", NAME, nullable=False),
        sa.Column("gpu_address", sa.String(45)),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", sa.Text),
        sa.Column("forgotten", sa.Boolean, nullable=False),
        sa.Column("monitor_seen_at", TIMESTAMP),
        sa.Column("monitor_report", sa.JSON),
        sa.Column("wanted_serial", sa.BigInteger, nullable=False),
        sa.Column("monitor_problems", sa.JSON, nullable=False),
        sa.Column("monitor_interval", sa.Float),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_hosts")),
        **STORAGE,
    )
    op.create_index(op.f("ix_hosts_monitor_seen_at"), "hosts", ["monitor_seen_at"])

    op.create_table(
        "endpoints",
        sa.Column("host_name", NAME, nullable=False),
        sa.Column("seen_at", TIMESTAMP, nullable=False),
        sa.Column("report", sa.JSON, nullable=False),
        sa.Column("gpu_address", sa.String(45)),
        sa.PrimaryKeyConstraint("host_name", name=op.f("pk_endpoints")),
        sa.ForeignKeyConstraint(
            ["host_name"], ["hosts.name"], name=op.f("fk_endpoints_host_name_hosts")
        ),
        **STORAGE,
    )

    op.create_table(
        "leases",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("project_id", NAME, nullable=False),
        sa.Column("user_id", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("memory_mb", sa.Integer),
        sa.Column("locality", sa.String(16), nullable=False),
        sa.Column("requirements", sa.JSON, nullable=False),
        sa.Column("policy", sa.String(64)),
        sa.Column("remoting", sa.String(64), nullable=False),
        sa.Column("wanted_host", NAME),
        sa.Column("avoided_hosts", sa.JSON, nullable=False),
        sa.Column("has_server", sa.Boolean, nullable=False),
        sa.Column("consumer_host", NAME),
        sa.Column("consumer_uid", sa.BigInteger),
        sa.Column("consumer_address", sa.String(15)),
        sa.Column("access", sa.String(16)),
        sa.Column("admitted_address", sa.String(15)),
        sa.Column("server_request", sa.JSON, nullable=False),
        sa.Column("server_id", sa.String(36)),
        sa.Column("server_host", NAME),
        sa.Column("port_id", sa.String(36)),
        sa.Column("port_tap", sa.String(15)),
        sa.Column("port_mac", sa.String(17)),
        sa.Column("port_ip", sa.String(15)),
        sa.Column("bound_host", NAME),
        sa.Column("fault_step", sa.String(64)),
        sa.Column("fault_message", sa.Text),
        sa.Column("created_at", TIMESTAMP, nullable=False),
        sa.Column("updated_at", TIMESTAMP, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("queued_at", TIMESTAMP),
        sa.Column("wait_until", TIMESTAMP),
        sa.Column("waiter_seen_at", TIMESTAMP),
        sa.Column("keepalive", sa.Integer),
        sa.Column("kept_until", TIMESTAMP),
        sa.Column("claimed_at", TIMESTAMP),
        sa.Column("claimed_mb", sa.BigInteger),
        sa.Column("claimed_gpus", sa.Float),
        sa.Column("released_at", TIMESTAMP),
        sa.Column("driven_by", NAME),
        sa.Column("driven_until", TIMESTAMP),
        sa.Column("timings", sa.JSON),
        sa.CheckConstraint(
            "status IN"
            " ('QUEUED', 'CLAIMED', 'BOOTING', 'ACTIVE', 'RELEASING', 'RELEASED', 'ERROR')",
            name=op.f("ck_leases_status"),
        ),
        sa.CheckConstraint("count > 0", name=op.f("ck_leases_count_positive")),
        sa.CheckConstraint(
            "(mode = 'shared' AND memory_mb IS NOT NULL AND memory_mb > 0)"
            " OR (mode = 'exclusive' AND memory_mb IS NULL)",
            name=op.f("ck_leases_memory_iff_shared"),
        ),
        sa.CheckConstraint(
            "locality IN ('any', 'local', 'remote')", name=op.f("ck_leases_locality")
        ),
        sa.CheckConstraint(
            "status <> 'ERROR' OR fault_message IS NOT NULL",
            name=op.f("ck_leases_error_has_fault"),
        ),
        sa.CheckConstraint(
            "status <> 'ACTIVE' OR server_id IS NOT NULL OR NOT has_server",
            name=op.f("ck_leases_active_has_server"),
        ),
        sa.CheckConstraint(
            "has_server OR server_id IS NULL", name=op.f("ck_leases_standalone_has_no_server")
        ),
        sa.CheckConstraint(
            "access IN ('masked', 'direct', 'native')", name=op.f("ck_leases_access")
        ),
        sa.CheckConstraint(
            "status NOT IN ('CLAIMED', 'BOOTING', 'ACTIVE') OR policy IS NOT NULL",
            name=op.f("ck_leases_policy_chose"),
        ),
        sa.CheckConstraint(
            "status <> 'QUEUED' OR queued_at IS NOT NULL", name=op.f("ck_leases_queued_has_time")
        ),
        sa.CheckConstraint(
            "status <> 'RELEASED' OR released_at IS NOT NULL",
            name=op.f("ck_leases_released_has_time"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
        **STORAGE,
    )
    op.create_index(
        op.f("uq_leases_server_id"), "leases", ["server_id"], unique=True, **set_only("server_id")
    )
    op.create_index(op.f("ix_leases_status_created"), "leases", ["status", "created_at", "id"])
    op.create_index(
        op.f("ix_leases_queue"),
        "leases",
        ["status", "priority", "queued_at", "id"],
        **set_only("queued_at"),
    )
    op.create_index(
        op.f("ix_leases_project_created"), "leases", ["project_id", "status", "created_at", "id"]
    )
    op.create_index(
        op.f("ix_leases_bound_host"), "leases", ["bound_host"], **set_only("bound_host")
    )

    op.create_table(
        "gpus",
        sa.Column("uuid", sa.String(96), nullable=False),
        sa.Column("host_name", NAME, nullable=False),
        sa.Column("device_index", sa.Integer, nullable=False),
        sa.Column("model", NAME, nullable=False),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("used_mb", sa.Integer, nullable=False),
        sa.Column("exclusive_lease_id", sa.String(36)),
        sa.Column("leases", sa.Integer, nullable=False),
        sa.Column("given", sa.BigInteger, nullable=False),
        sa.Column("parent_uuid", sa.String(96)),
        sa.Column("compute_capability", sa.String(8)),
        sa.Column("daemon_port", sa.Integer, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", sa.Text),
        sa.Column("withdrawn_reason", sa.Text),
        sa.Column("awaits_operator", sa.Boolean, nullable=False),
        sa.Column("fatal_error_at", TIMESTAMP),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.CheckConstraint("memory_mb > 0", name=op.f("ck_gpus_memory_positive")),
        sa.CheckConstraint(
            "used_mb >= 0 AND used_mb <= memory_mb", name=op.f("ck_gpus_never_over_committed")
        ),
        sa.CheckConstraint(
            "exclusive_lease_id IS NULL OR used_mb = memory_mb",
            name=op.f("ck_gpus_exclusive_is_whole"),
        ),
        sa.CheckConstraint("leases >= 0", name=op.f("ck_gpus_leases")),
        sa.CheckConstraint("daemon_port BETWEEN 1 AND 65535", name=op.f("ck_gpus_daemon_port")),
        sa.CheckConstraint(
            "NOT awaits_operator OR withdrawn_reason IS NOT NULL",
            name=op.f("ck_gpus_waiting_has_reason"),
        ),
        sa.PrimaryKeyConstraint("uuid", name=op.f("pk_gpus")),
        sa.UniqueConstraint("host_name", "device_index", name=op.f("uq_gpus_host_name")),
        sa.ForeignKeyConstraint(
            ["host_name"], ["hosts.name"], name=op.f("fk_gpus_host_name_hosts")
        ),
        sa.ForeignKeyConstraint(
            ["exclusive_lease_id"], ["leases.id"], name=op.f("fk_gpus_exclusive_lease_id_leases")
        ),
        **STORAGE,
    )
    op.create_index(op.f("ix_gpus_generation"), "gpus", ["generation"])

    op.create_table(
        "gpu_readings",
        sa.Column("gpu_uuid", sa.String(96), nullable=False),
        sa.Column("at", TIMESTAMP, nullable=False),
        sa.Column("used_mb", sa.Integer),
        sa.Column("utilisation", sa.Float),
        sa.Column("mean_utilisation", sa.Float),
        sa.Column("temperature_c", sa.Float),
        sa.Column("power_w", sa.Float),
        sa.Column("processes", sa.JSON, nullable=False),
        sa.Column("xid_errors", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("gpu_uuid", name=op.f("pk_gpu_readings")),
        sa.ForeignKeyConstraint(
            ["gpu_uuid"],
            ["gpus.uuid"],
            name=op.f("fk_gpu_readings_gpu_uuid_gpus"),
            ondelete="CASCADE",
        ),
        **STORAGE,
    )

    op.create_table(
        "claims",
        sa.Column("lease_id", sa.String(36), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("gpu_uuid", sa.String(96), nullable=False),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("masked_ip", sa.String(15)),
        sa.Column("masked_port", sa.Integer),
        sa.Column("masked_host", NAME),
        sa.Column("daemon_host", NAME),
        sa.Column("daemon_port", sa.Integer),
        sa.CheckConstraint("memory_mb > 0", name=op.f("ck_claims_memory_positive")),
        sa.CheckConstraint("masked_port BETWEEN 1 AND 65535", name=op.f("ck_claims_masked_port")),
        sa.PrimaryKeyConstraint("lease_id", "position", name=op.f("pk_claims")),
        sa.CheckConstraint("daemon_port BETWEEN 1 AND 65535", name=op.f("ck_claims_daemon_port")),
        sa.ForeignKeyConstraint(
            ["lease_id"], ["leases.id"], name=op.f("fk_claims_lease_id_leases")
        ),
        sa.ForeignKeyConstraint(["gpu_uuid"], ["gpus.uuid"], name=op.f("fk_claims_gpu_uuid_gpus")),
        sqlite_with_rowid=False,
        **STORAGE,
    )
    op.create_index(
        op.f("uq_claims_masked"),
        "claims",
        ["lease_id", "masked_ip", "masked_port"],
        unique=True,
        **set_only("masked_ip"),
    )
    op.create_index(
        op.f("uq_claims_masked_host"),
        "claims",
        ["masked_host", "masked_ip", "masked_port"],
        unique=True,
        **set_only("masked_host"),
    )
    op.create_index(
        op.f("uq_claims_daemon"),
        "claims",
        ["daemon_host", "daemon_port"],
        unique=True,
        **set_only("daemon_port"),
    )
    op.create_index(op.f("ix_claims_gpu_uuid"), "claims", ["gpu_uuid"])

    op.create_table(
        "lease_events",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=True),
        sa.Column("lease_id", sa.String(36), nullable=False),
        sa.Column("at", TIMESTAMP, nullable=False),
        sa.Column("event", sa.String(32), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("detail", sa.Text),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lease_events")),
        sa.ForeignKeyConstraint(
            ["lease_id"], ["leases.id"], name=op.f("fk_lease_events_lease_id_leases")
        ),
        **STORAGE,
    )
    op.create_index(op.f("ix_lease_events_lease_id"), "lease_events", ["lease_id"])

    op.create_table(
        "projects",
        sa.Column("id", NAME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        **STORAGE,
    )

    op.create_table(
        "settings",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("value", sa.JSON, nullable=False),
        sa.Column("updated_at", TIMESTAMP, nullable=False),
        sa.Column("updated_by", NAME),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_settings")),
        **STORAGE,
    )


def downgrade() -> None:
    """Forget everything, in the reverse order."""
    for table in (
        "settings",
        "projects",
        "lease_events",
        "claims",
        "gpu_readings",
        "gpus",
        "leases",
        "endpoints",
        "hosts",
    ):
        op.drop_table(table)
