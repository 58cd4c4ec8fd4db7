# SPDX-License-Identifier: Apache-2.0
"""A number for each project that its claims change in turn, also at different nodes of a Galera cluster."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    column = sa.Column("serial", sa.BigInteger, nullable=False, server_default=sa.text("0"))
    # MariaDB does not undo what a migration did before it failed.
    if column.name not in {
        each["name"] for each in sa.inspect(op.get_bind()).get_columns("projects")
    }:
        op.add_column("projects", column)


def downgrade() -> None:
    op.drop_column("projects", "serial")
