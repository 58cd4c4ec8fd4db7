# SPDX-License-Identifier: Apache-2.0
"""Remove what callers asked of the cloud, passwords included, once it is not needed; index what usage adds up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

NEEDED = ("QUEUED", "CLAIMED")
"""The statuses in which the server does not exist yet."""


def upgrade() -> None:
    condition = sa.text("released_at IS NOT NULL")
    op.create_index(
        "ix_leases_usage",
        "leases",
        ["project_id", "released_at", "claimed_at", "claimed_gpus", "claimed_mb"],
        sqlite_where=condition,
        postgresql_where=condition,
    )
    leases = sa.table("leases", sa.column("status"), sa.column("server_request", sa.JSON))
    op.execute(leases.update().where(leases.c.status.not_in(NEEDED)).values(server_request={}))


def downgrade() -> None:
    op.drop_index("ix_leases_usage", "leases")
