# SPDX-License-Identifier: Apache-2.0
"""Numbers by which copies of the GPUs are kept up to date; the index of generations is no longer used."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0006"
down_revision = "0005"

TIMESTAMP = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
STORAGE: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so each part looks whether it was done.
    present = sa.inspect(op.get_bind())
    if not present.has_table("gpu_writers"):
        op.create_table(
            "gpu_writers",
            sa.Column("id", sa.Integer, autoincrement=True, nullable=False),
            sa.Column("created_at", TIMESTAMP, nullable=False),
            sa.PrimaryKeyConstraint("id", name=op.f("pk_gpu_writers")),
            sqlite_autoincrement=True,
            **STORAGE,
        )
    if not present.has_table("pool_versions"):
        op.create_table(
            "pool_versions",
            sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
            *(
                sa.Column(name, sa.BigInteger, nullable=False)
                for name in ("gpus", "hosts", "endpoints")
            ),
            sa.PrimaryKeyConstraint("id", name=op.f("pk_pool_versions")),
            **STORAGE,
        )
    if "change_number" not in {column["name"] for column in present.get_columns("gpus")}:
        op.add_column(
            "gpus", sa.Column("change_number", sa.BigInteger, nullable=False, server_default="0")
        )
    indexes = {index["name"] for index in present.get_indexes("gpus")}
    if "ix_gpus_change_number" not in indexes:
        op.create_index("ix_gpus_change_number", "gpus", ["change_number"])
    if "ix_gpus_generation" in indexes:
        op.drop_index("ix_gpus_generation", "gpus")


def downgrade() -> None:
    op.create_index("ix_gpus_generation", "gpus", ["generation"])
    op.drop_index("ix_gpus_change_number", "gpus")
    op.drop_column("gpus", "change_number")
    op.drop_table("pool_versions")
    op.drop_table("gpu_writers")
