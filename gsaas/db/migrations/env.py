# SPDX-License-Identifier: Apache-2.0
"""Run by alembic: migrate on the connection that `gsaas.db.migration` has opened."""

from __future__ import annotations

from alembic import context

from gsaas.db.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite changes a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
