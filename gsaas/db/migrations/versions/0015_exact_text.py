# SPDX-License-Identifier: Apache-2.0
"""Text that is compared by all of its characters on MariaDB and MySQL, too; and digests of requests without a key go.

Spaces at the end of a text count. The digests of releases before this one were made without a secret, so that whoever
read them could try passwords; `gsaas.api.idempotency` makes others.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

MARIADB, MYSQL, PADDED = "utf8mb4_nopad_bin", "utf8mb4_0900_bin", "utf8mb4_bin"

TABLES = sa.text(
    "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
    " AND table_collation <> :collation AND table_name <> 'alembic_version' ORDER BY table_name"
)
COLUMNS = sa.text(
    "SELECT column_name, column_type, is_nullable FROM information_schema.columns"
    # Not JSON, which MariaDB stores as LONGTEXT.
    " WHERE table_schema = DATABASE() AND data_type IN ('varchar', 'text')"
    " AND table_name = :table ORDER BY ordinal_position"
)


FOREIGN_KEYS = (
    ("claims", "gpu_uuid", "gpus", "uuid", None),
    ("claims", "lease_id", "leases", "id", None),
    ("disputed_gpus", "gpu_uuid", "gpus", "uuid", "CASCADE"),
    ("disputed_gpus", "host_name", "hosts", "name", "CASCADE"),
    ("endpoints", "host_name", "hosts", "name", None),
    ("gpu_readings", "gpu_uuid", "gpus", "uuid", "CASCADE"),
    ("gpus", "exclusive_lease_id", "leases", "id", None),
    ("gpus", "host_name", "hosts", "name", None),
    ("lease_events", "lease_id", "leases", "id", None),
    ("reserved_shares", "reservation_id", "reservations", "id", None),
)
"""Table, column, table and column that it refers to, what becomes of the row when that goes."""


def upgrade() -> None:
    op.execute("UPDATE leases SET request_digest = NULL WHERE request_digest IS NOT NULL")
    dialect = op.get_bind().dialect
    _collate(MARIADB if getattr(dialect, "is_mariadb", False) else MYSQL)


def downgrade() -> None:
    _collate(PADDED)


def _collate(collation: str) -> None:
    """Give all text *collation*, table by table; what a migration that failed has done is left out."""
    connection = op.get_bind()
    if connection.dialect.name != "mysql":
        return
    tables = list(connection.scalars(TABLES, {"collation": collation}))
    if tables:
        # The columns at both ends of a foreign key have to change, and no table may have one meanwhile.
        for table, name in _foreign_keys():
            op.drop_constraint(name, table, type_="foreignkey")
    for table in tables:
        text = f"CHARACTER SET utf8mb4 COLLATE {collation}"
        changes = [f"DEFAULT {text}"]
        for name, kind, nullable in connection.execute(COLUMNS, {"table": table}):
            null = "NULL" if nullable == "YES" else "NOT NULL"
            changes.append(f"MODIFY `{name}` {kind} {text} {null}")
        op.execute(f"ALTER TABLE {table} {', '.join(changes)}")
    there = _foreign_keys()
    for table, column, other, referred, ondelete in FOREIGN_KEYS:
        name = op.f(f"fk_{table}_{column}_{other}")
        if (table, name) not in there:
            op.create_foreign_key(name, table, other, [column], [referred], ondelete=ondelete)


def _foreign_keys() -> set[tuple[str, str]]:
    """Return the foreign keys that there are: table and name."""
    inspector = sa.inspect(op.get_bind())
    tables = {table for table, *_ in FOREIGN_KEYS}
    return {
        (table, str(key["name"])) for table in tables for key in inspector.get_foreign_keys(table)
    }
