"""Leases: which engine drives one and until when, and how long each phase of a launch took."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"

TIMESTAMP = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
ADDED = {"driven_by": sa.String(255), "driven_until": TIMESTAMP, "timings": sa.JSON}


def upgrade() -> None:
    for name, kind in ADDED.items():
        op.add_column("leases", sa.Column(name, kind))


def downgrade() -> None:
    """Forget all three."""
    for name in reversed(ADDED):
        op.drop_column("leases", name)
