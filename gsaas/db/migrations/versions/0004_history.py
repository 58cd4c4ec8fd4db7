# SPDX-License-Identifier: Apache-2.0
"""Remove what callers asked of the cloud, passwords included, once it is not needed; index what usage adds up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

NEEDED = ("QUEUED", "CLAIMED")
"""The statuses in which the server does not exist yet."""


BATCH = 500
"""Leases that are changed by one statement; MariaDB commits each batch, so that it locks no more rows than that."""


def upgrade() -> None:
    _forget_server_requests()
    # MariaDB does not undo what a migration did before it failed, so the index may be there.
    if "ix_leases_usage" in {
        index["name"] for index in sa.inspect(op.get_bind()).get_indexes("leases")
    }:
        return
    condition = sa.text("released_at IS NOT NULL")
    op.create_index(
        "ix_leases_usage",
        "leases",
        ["project_id", "released_at", "claimed_at", "claimed_gpus", "claimed_mb"],
        sqlite_where=condition,
        postgresql_where=condition,
    )


def _forget_server_requests() -> None:
    leases = sa.table(
        "leases",
        *(sa.column("id", sa.String), sa.column("status", sa.String)),
        sa.column("server_request", sa.JSON),
    )
    columns, connection, last = leases.c, op.get_bind(), ""
    has_any = sa.cast(columns.server_request, sa.Text) != "{}"
    query = sa.select(columns.id).where(columns.status.not_in(NEEDED), has_any)
    while ids := list(
        connection.scalars(query.where(columns.id > last).order_by(columns.id).limit(BATCH))
    ):
        connection.execute(leases.update().where(columns.id.in_(ids)).values(server_request={}))
        if connection.dialect.name == "mysql":
            connection.exec_driver_sql("COMMIT")
        last = ids[-1]


def downgrade() -> None:
    op.drop_index("ix_leases_usage", "leases")
