# SPDX-License-Identifier: Apache-2.0
"""When a lease ends, how long it was to last, and the end of which its owner was warned."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0017"
down_revision = "0016"

TIMESTAMP = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
COLUMNS = (("duration", sa.Integer()), ("ends_at", TIMESTAMP), ("warned_end", TIMESTAMP))
INDEX = "ix_leases_ends"


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so some of it may be there.
    inspector = sa.inspect(op.get_bind())
    there = {column["name"] for column in inspector.get_columns("leases")}
    for name, kind in COLUMNS:
        if name not in there:
            op.add_column("leases", sa.Column(name, kind))
    if INDEX not in {index["name"] for index in inspector.get_indexes("leases")}:
        condition = sa.text("ends_at IS NOT NULL")
        op.create_index(
            INDEX,
            "leases",
            ["status", "ends_at"],
            sqlite_where=condition,
            postgresql_where=condition,
        )


def downgrade() -> None:
    op.drop_index(INDEX, "leases")
    for name, _ in COLUMNS:
        op.drop_column("leases", name)
