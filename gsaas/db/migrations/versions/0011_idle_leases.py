# SPDX-License-Identifier: Apache-2.0
"""When an idle lease, whose owner was warned, loses its GPUs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0011"
down_revision = "0010"

COLUMN = "reclaim_at"
TIMESTAMP = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so the column may be there.
    columns = sa.inspect(op.get_bind()).get_columns("leases")
    if COLUMN not in {column["name"] for column in columns}:
        op.add_column("leases", sa.Column(COLUMN, TIMESTAMP))


def downgrade() -> None:
    op.drop_column("leases", COLUMN)
