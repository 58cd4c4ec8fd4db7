# SPDX-License-Identifier: Apache-2.0
"""The highest utilisation of each cGPU, and an index for rows of readings that stay with the history of leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

TABLE, COLUMN = "cgpu_readings", "utilisation_max"
INDEX, BEFORE = "ix_cgpu_readings_resolution_at", "ix_cgpu_readings_at"


def _indexes() -> set[str | None]:
    return {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(TABLE)}


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so some of it may be there.
    columns = sa.inspect(op.get_bind()).get_columns(TABLE)
    if COLUMN not in {column["name"] for column in columns}:
        op.add_column(TABLE, sa.Column(COLUMN, sa.Float))
    if INDEX not in _indexes():
        op.create_index(INDEX, TABLE, ["resolution", "at"])
    if BEFORE in _indexes():
        op.drop_index(BEFORE, TABLE)


def downgrade() -> None:
    op.create_index(BEFORE, TABLE, ["at"])
    op.drop_index(INDEX, TABLE)
    op.drop_column(TABLE, COLUMN)
