# SPDX-License-Identifier: Apache-2.0
"""The migrations of the database, which alembic runs; `gsaas.db.migration` calls it."""
