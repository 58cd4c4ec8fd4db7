"""The migrations of the database, which alembic runs; `gsaas.db.migration` calls it."""
