# SPDX-License-Identifier: Apache-2.0
"""Leases whose cGPUs move: how far that is, of which kind it is, and which of two daemons serves a cGPU."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0019"
down_revision = "0018"

TIMESTAMP = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
COLUMNS = (
    ("moving", sa.String(16)),
    ("move_kind", sa.String(16)),
    ("moving_since", TIMESTAMP),
)
INDEX, TURN = "ix_leases_moving", "daemon_turn"


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so some of it may be there.
    inspector = sa.inspect(op.get_bind())
    there = {column["name"] for column in inspector.get_columns("leases")}
    for name, kind in COLUMNS:
        if name not in there:
            op.add_column("leases", sa.Column(name, kind))
    if INDEX not in {index["name"] for index in inspector.get_indexes("leases")}:
        condition = sa.text("moving IS NOT NULL")
        op.create_index(
            INDEX, "leases", ["moving"], sqlite_where=condition, postgresql_where=condition
        )
    if TURN not in {column["name"] for column in inspector.get_columns("claims")}:
        column = sa.Column(TURN, sa.Integer, nullable=False, server_default=sa.text("0"))
        op.add_column("claims", column)


def downgrade() -> None:
    op.drop_column("claims", TURN)
    op.drop_index(INDEX, "leases")
    for name, _ in COLUMNS:
        op.drop_column("leases", name)
