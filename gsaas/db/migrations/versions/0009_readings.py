# SPDX-License-Identifier: Apache-2.0
"""What the cGPUs of leases and their masked paths did in the last day."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0009"
down_revision = "0008"

TIMESTAMP = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
STORAGE: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def _key(*more: str) -> list[sa.Column[Any]]:
    return [
        sa.Column("lease_id", sa.String(36), nullable=False),
        *(
            sa.Column(name, sa.Integer, nullable=False, autoincrement=False)
            for name in ("resolution", "slot", *more)
        ),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("at", TIMESTAMP, nullable=False),
    ]


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so some of it may be there.
    inspector = sa.inspect(op.get_bind())
    if not inspector.has_table("cgpu_readings"):
        op.create_table(
            "cgpu_readings",
            *_key("position"),
            sa.Column("samples", sa.Integer, nullable=False),
            sa.Column("utilisation_sum", sa.Float, nullable=False),
            sa.Column("used_mb", sa.Integer),
            sa.Column("busy_at", TIMESTAMP, nullable=False),
            sa.PrimaryKeyConstraint(
                *("lease_id", "resolution", "slot", "position"), name=op.f("pk_cgpu_readings")
            ),
            **STORAGE,
        )
    if not inspector.has_table("path_readings"):
        op.create_table(
            "path_readings",
            *_key(),
            *(
                sa.Column(name, sa.BigInteger, nullable=False)
                for name in ("sent_bytes", "received_bytes", "connections", "dropped_packets")
            ),
            sa.Column("busy_at", TIMESTAMP, nullable=False),
            sa.PrimaryKeyConstraint(
                *("lease_id", "resolution", "slot"), name=op.f("pk_path_readings")
            ),
            **STORAGE,
        )
    # An index is a statement of its own, too.
    for table in ("cgpu_readings", "path_readings"):
        name = f"ix_{table}_at"
        if name not in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}:
            op.create_index(name, table, ["at"])


def downgrade() -> None:
    op.drop_table("path_readings")
    op.drop_table("cgpu_readings")
