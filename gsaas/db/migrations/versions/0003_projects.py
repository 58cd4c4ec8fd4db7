"""Projects: one row each, for claims of the same project to queue up for while its quota is counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "projects",
        sa.Column("id", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_projects"),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
    )


def downgrade() -> None:
    """Forget the rows; the next claim of each project makes its own again."""
    op.drop_table("projects")
