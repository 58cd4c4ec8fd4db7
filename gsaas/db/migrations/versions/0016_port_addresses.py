# SPDX-License-Identifier: Apache-2.0
"""Further IPv4 addresses of the port of a lease's server."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

COLUMN = "port_other_ips"


def upgrade() -> None:
    # MariaDB does not undo what a migration did before it failed, so the column may be there.
    columns = sa.inspect(op.get_bind()).get_columns("leases")
    if COLUMN not in {column["name"] for column in columns}:
        op.add_column("leases", sa.Column(COLUMN, sa.JSON))


def downgrade() -> None:
    op.drop_column("leases", COLUMN)
