# SPDX-License-Identifier: Apache-2.0
"""What leases used: the models of their GPUs, and the highest utilisation of each cGPU.

Rows of readings stay with the history of leases, so an index tells them from the others.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

TABLE, COLUMN = "cgpu_readings", "utilisation_max"
INDEX, BEFORE = "ix_cgpu_readings_resolution_at", "ix_cgpu_readings_at"
MODELS = "claimed_models"


def _has_column(table: str, name: str) -> bool:
    return name in {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}


def _indexes() -> set[str | None]:
    return {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(TABLE)}


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so some of it may be there.
    if not _has_column("leases", MODELS):
        op.add_column("leases", sa.Column(MODELS, sa.Text))
    if not _has_column(TABLE, COLUMN):
        op.add_column(TABLE, sa.Column(COLUMN, sa.Float))
    if INDEX not in _indexes():
        op.create_index(INDEX, TABLE, ["resolution", "at"])
    if BEFORE in _indexes():
        op.drop_index(BEFORE, TABLE)


def downgrade() -> None:
    op.create_index(BEFORE, TABLE, ["at"])
    op.drop_index(INDEX, TABLE)
    op.drop_column(TABLE, COLUMN)
    op.drop_column("leases", MODELS)
