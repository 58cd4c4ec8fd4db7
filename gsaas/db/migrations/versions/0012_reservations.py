# SPDX-License-Identifier: Apache-2.0
"""Reservations, and what is kept for them of each GPU."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0012"
down_revision = "0011"

NAME = sa.String(255)
TIMESTAMP = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
STORAGE: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}
CHECK = "reserved_mb >= 0 AND (reserved_mb = 0 OR used_mb + reserved_mb <= memory_mb)"


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so some of it may be there.
    inspector = sa.inspect(op.get_bind())

    def lacks(table: str, column: str) -> bool:
        return column not in {one["name"] for one in inspector.get_columns(table)}

    is_sqlite = op.get_context().dialect.name == "sqlite"
    check = op.f("ck_gpus_never_over_reserved")
    if lacks("gpus", "reserved_mb"):
        reserved = sa.Column("reserved_mb", sa.Integer, nullable=False, server_default=sa.text("0"))
        if is_sqlite:
            # SQLite adds a check only together with a column.
            op.execute(
                f"ALTER TABLE gpus ADD COLUMN reserved_mb INTEGER DEFAULT 0 NOT NULL CONSTRAINT {check} CHECK ({CHECK})"
            )
        else:
            op.add_column("gpus", reserved)
    if not is_sqlite and check not in {
        one["name"] for one in inspector.get_check_constraints("gpus")
    }:
        op.create_check_constraint(check, "gpus", sa.text(CHECK))
    if lacks("pool_versions", "reservations"):
        op.add_column(
            "pool_versions",
            sa.Column("reservations", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        )
    if lacks("leases", "reservation_id"):
        op.add_column("leases", sa.Column("reservation_id", sa.String(36)))
    if not inspector.has_table("reservations"):
        op.create_table(
            "reservations",
            sa.Column("id", sa.String(36), nullable=False),
            *(sa.Column(name, NAME, nullable=False) for name in ("project_id", "user_id", "name")),
            sa.Column("status", sa.String(16), nullable=False),
            sa.Column("cgpus", sa.JSON, nullable=False),
            *(
                sa.Column(name, TIMESTAMP, nullable=False)
                for name in ("start_at", "end_at", "created_at")
            ),
            sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
            sa.CheckConstraint(
                "status IN ('PENDING', 'ACTIVE', 'ENDED', 'CANCELLED')",
                name=op.f("ck_reservations_status"),
            ),
            sa.CheckConstraint(
                "start_at < end_at", name=op.f("ck_reservations_begins_before_its_end")
            ),
            **STORAGE,
        )
    if not inspector.has_table("reserved_shares"):
        op.create_table(
            "reserved_shares",
            sa.Column("reservation_id", sa.String(36), nullable=False),
            sa.Column("position", sa.Integer, nullable=False, autoincrement=False),
            sa.Column("gpu_uuid", sa.String(96), nullable=False),
            sa.Column("memory_mb", sa.Integer, nullable=False),
            sa.Column("kept", sa.Boolean, nullable=False),
            sa.Column("lease_id", sa.String(36)),
            sa.PrimaryKeyConstraint("reservation_id", "position", name=op.f("pk_reserved_shares")),
            sa.ForeignKeyConstraint(
                ["reservation_id"],
                ["reservations.id"],
                name=op.f("fk_reserved_shares_reservation_id_reservations"),
            ),
            sa.CheckConstraint("memory_mb > 0", name=op.f("ck_reserved_shares_memory_positive")),
            sa.CheckConstraint(
                "kept OR lease_id IS NULL", name=op.f("ck_reserved_shares_claimed_is_kept")
            ),
            **STORAGE,
        )
    claimed = sa.text("lease_id IS NOT NULL")
    project = ("project_id", "status", "created_at", "id")
    _add_index("ix_reservations_project_created", "reservations", *project)
    _add_index("ix_reservations_status_end", "reservations", "status", "end_at")
    _add_index(
        *("ix_reserved_shares_lease_id", "reserved_shares", "lease_id"),
        sqlite_where=claimed,
        postgresql_where=claimed,
    )


def _add_index(name: str, table: str, *columns: str, **more: Any) -> None:
    """Create an index, a statement of its own, unless it is there."""
    if name not in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}:
        op.create_index(name, table, list(columns), **more)


def downgrade() -> None:
    op.drop_table("reserved_shares")
    op.drop_table("reservations")
    op.drop_column("leases", "reservation_id")
    op.drop_column("pool_versions", "reservations")
    if op.get_context().dialect.name != "sqlite":
        op.drop_constraint(op.f("ck_gpus_never_over_reserved"), "gpus", type_="check")
    op.drop_column("gpus", "reserved_mb")
