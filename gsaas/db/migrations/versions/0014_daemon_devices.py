# SPDX-License-Identifier: Apache-2.0
"""Several cGPUs of a lease that one daemon serves: the number of each among its devices."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

COLUMN, INDEX = "daemon_device", "uq_claims_daemon"
BEFORE = ["daemon_host", "daemon_port"]


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so some of it may be there.
    inspector = sa.inspect(op.get_bind())
    if COLUMN not in {column["name"] for column in inspector.get_columns("claims")}:
        column = sa.Column(COLUMN, sa.Integer, nullable=False, server_default=sa.text("0"))
        op.add_column("claims", column)
    _replace_index([*BEFORE, COLUMN])


def downgrade() -> None:
    _replace_index(BEFORE)
    op.drop_column("claims", COLUMN)


def _replace_index(columns: list[str]) -> None:
    condition = sa.text("daemon_port IS NOT NULL")
    options: dict[str, Any] = {"sqlite_where": condition, "postgresql_where": condition}
    there = {index["name"]: index for index in sa.inspect(op.get_bind()).get_indexes("claims")}
    if INDEX in there and there[INDEX]["column_names"] != columns:
        op.drop_index(INDEX, "claims")
        del there[INDEX]
    if INDEX not in there:
        op.create_index(INDEX, "claims", columns, unique=True, **options)
