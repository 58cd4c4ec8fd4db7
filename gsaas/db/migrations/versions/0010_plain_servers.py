# SPDX-License-Identifier: Apache-2.0
"""Which server that its owner made with Nova a lease was claimed for, so that such a server gets one lease only."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

COLUMN = "plain_server_id"
INDEX = "uq_leases_plain_server_id"


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so some of it may be there.
    inspector = sa.inspect(op.get_bind())
    if COLUMN not in {column["name"] for column in inspector.get_columns("leases")}:
        op.add_column("leases", sa.Column(COLUMN, sa.String(36)))
    if INDEX not in {index["name"] for index in inspector.get_indexes("leases")}:
        condition = sa.text(f"{COLUMN} IS NOT NULL")
        op.create_index(
            INDEX,
            "leases",
            [COLUMN],
            unique=True,
            sqlite_where=condition,
            postgresql_where=condition,
        )


def downgrade() -> None:
    op.drop_index(INDEX, "leases")
    op.drop_column("leases", COLUMN)
