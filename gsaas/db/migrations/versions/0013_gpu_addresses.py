# SPDX-License-Identifier: Apache-2.0
"""Indexes of hosts and endpoints by their address on the GPU network: each new report looks for others that have it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

TABLES = ("hosts", "endpoints")
COLUMN = "gpu_address"


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so one of them may be there.
    for table in TABLES:
        name = f"ix_{table}_{COLUMN}"
        there = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}
        if name not in there:
            op.create_index(name, table, [COLUMN])


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_index(f"ix_{table}_{COLUMN}", table)
