# SPDX-License-Identifier: Apache-2.0
"""Which moves the owners of leases consent to, what leases used before they moved, and hosts that are drained."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0020"
down_revision = "0019"

TIMESTAMP = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
COLUMNS = (
    ("leases", "movable", sa.String(16)),
    ("leases", "usage_changed_at", TIMESTAMP),
    ("leases", "past_usage", sa.JSON(none_as_null=True)),
    ("hosts", "draining_since", TIMESTAMP),
    ("hosts", "drain_by", TIMESTAMP),
    ("hosts", "drain_waits", sa.JSON(none_as_null=True)),
)
INDEX, INDEXED = "ix_leases_usage_changed_at", "usage_changed_at"


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so some of it may be there.
    inspector = sa.inspect(op.get_bind())
    there = {
        (table, column["name"])
        for table in ("leases", "hosts")
        for column in inspector.get_columns(table)
    }
    for table, name, kind in COLUMNS:
        if (table, name) not in there:
            op.add_column(table, sa.Column(name, kind))
    if INDEX not in {index["name"] for index in inspector.get_indexes("leases")}:
        condition = sa.text(f"{INDEXED} IS NOT NULL")
        op.create_index(
            INDEX, "leases", [INDEXED], sqlite_where=condition, postgresql_where=condition
        )


def downgrade() -> None:
    op.drop_index(INDEX, "leases")
    for table, name, _ in COLUMNS:
        op.drop_column(table, name)
