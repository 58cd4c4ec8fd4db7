# SPDX-License-Identifier: Apache-2.0
"""Which request made a lease, so that a request that is sent again makes no second one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

COLUMNS = ("request_key", "request_digest")
INDEX = "uq_leases_request_key"


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so some of it may be there.
    inspector = sa.inspect(op.get_bind())
    there = {column["name"] for column in inspector.get_columns("leases")}
    for name in COLUMNS:
        if name not in there:
            op.add_column("leases", sa.Column(name, sa.String(64)))
    if INDEX not in {index["name"] for index in inspector.get_indexes("leases")}:
        condition = sa.text("request_key IS NOT NULL")
        op.create_index(
            INDEX,
            "leases",
            ["request_key"],
            unique=True,
            sqlite_where=condition,
            postgresql_where=condition,
        )


def downgrade() -> None:
    op.drop_index(INDEX, "leases")
    for name in COLUMNS:
        op.drop_column("leases", name)
