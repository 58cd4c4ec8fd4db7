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


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so some of it may be there.
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("leases")}
    for name, kind in COLUMNS:
        if name not in there:
            op.add_column("leases", sa.Column(name, kind))


def downgrade() -> None:
    for name, _ in COLUMNS:
        op.drop_column("leases", name)
