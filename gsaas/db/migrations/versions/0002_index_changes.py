# SPDX-License-Identifier: Apache-2.0
"""Index leases by the time of their last change, for the list with `changes-since`."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_index("ix_leases_updated", "leases", ["updated_at", "id"])


def downgrade() -> None:
    op.drop_index("ix_leases_updated", "leases")
