# SPDX-License-Identifier: Apache-2.0
"""Which hosts report a GPU that another host has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0005"
down_revision = "0004"

TIMESTAMP = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "disputed_gpus",
        sa.Column("gpu_uuid", sa.String(96), nullable=False),
        sa.Column("host_name", sa.String(255), nullable=False),
        sa.Column("since", TIMESTAMP, nullable=False),
        sa.ForeignKeyConstraint(
            ["gpu_uuid"],
            ["gpus.uuid"],
            name=op.f("fk_disputed_gpus_gpu_uuid_gpus"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["host_name"],
            ["hosts.name"],
            name=op.f("fk_disputed_gpus_host_name_hosts"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("gpu_uuid", "host_name", name=op.f("pk_disputed_gpus")),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )
    op.create_index(op.f("ix_disputed_gpus_host_name"), "disputed_gpus", ["host_name"])


def downgrade() -> None:
    op.drop_table("disputed_gpus")
