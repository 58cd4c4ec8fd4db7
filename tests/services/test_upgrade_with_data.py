# SPDX-License-Identifier: Apache-2.0
"""Each migration keeps the data that the revision before it has, on every database; and those of a release stay."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic.script import ScriptDirectory

from gsaas.db import leases, migration, models
from gsaas.db.database import Database
from gsaas.objects.lifecycle import Status
from tests.support import rows

pytestmark = pytest.mark.services

MIGRATIONS = Path(migration.__file__).parent / "migrations"
REVISIONS = [
    script.revision for script in reversed(list(ScriptDirectory(str(MIGRATIONS)).walk_revisions()))
]

FROZEN = {
    "0001_initial.py": "caccd91c0efa80ae4d396114092482d8ebae8669b628c6bfba19deff19c84c17",
    "0002_index_changes.py": "b280462b4f6d0933067c008dbb4888e9f78e83daeeef557fba605adec554ede3",
    "0003_processes.py": "563178eec1c573154424b7c0b1f62ce2fddbf1895eee3bdf96a75b0fc7347fd5",
    "0004_history.py": "02e4a69080e627d0402012abd9e0dfc14db1bf906794cd23f67a670dbdfefdb1",
    "0005_disputed_gpus.py": "8ffd9dff8e212e1b510049c1a25151ca52513afcfe20ed1cbfdaa029626329d2",
}
"""Migrations that databases have been through, and their SHA-256. A change of tables is a new migration."""

CHANGED = {"0004": {("leases", "server_request")}}
"""Revision -> the columns whose values it changes on purpose."""


def data(there: set[str]) -> list[models.Base]:
    """Return rows of every table that is *there*: a lease of each status, with what belongs to it."""
    more: dict[str, dict[str, Any]] = {
        "QUEUED": {"queued_at": rows.second(1), "policy": None},
        "ACTIVE": {"server_id": "s1", "claimed_at": rows.second(2), "timings": {"claim": 0.25}},
        "RELEASED": {"released_at": rows.second(9), "claimed_at": rows.second(2)},
        "ERROR": {"fault_message": "it failed", "fault_step": "bind"},
    }
    made: list[models.Base] = [
        rows.host(monitor_seen_at=rows.second(3), monitor_report={"serial": 7}, wanted_serial=8),
        models.EndpointRow(
            host_name="gpu1",
            seen_at=rows.second(3),
            report={"bindings": {}},
            gpu_address="192.0.2.1",
        ),
        *(
            rows.lease(
                status, status=status, name=f"\N{PARTY POPPER} {status}", **more.get(status, {})
            )
            for status in Status
        ),
        rows.gpu(used_mb=2048, leases=1, given=5, generation=6, change_number=2**36 + 1),
        rows.gpu(
            "GPU-b",
            device_index=1,
            used_mb=40960,
            leases=1,
            exclusive_lease_id="CLAIMED",
            generation=7,
            change_number=0,
        ),
        models.GpuWriterRow(id=1, created_at=rows.second(3)),
        models.PoolVersionRow(id=1, gpus=2**61, hosts=0, endpoints=5),
        models.GpuReadingRow(gpu_uuid="GPU-a", at=rows.second(3), used_mb=5, power_w=70.5),
        models.CgpuReadingRow(
            lease_id="ACTIVE",
            position=0,
            resolution=60,
            slot=3,
            number=63,
            samples=2,
            utilisation_sum=37.5,
            used_mb=5,
            at=rows.second(3),
            busy_at=rows.second(2),
        ),
        models.PathReadingRow(
            lease_id="ACTIVE",
            resolution=600,
            slot=3,
            number=147,
            sent_bytes=2**40,
            received_bytes=7,
            connections=1,
            dropped_packets=0,
            at=rows.second(3),
            busy_at=rows.second(2),
        ),
        models.DisputedGpuRow(gpu_uuid="GPU-a", host_name="gpu1", since=rows.second(4)),
        models.ProjectRow(id="project-1", serial=2),
        rows.claim("ACTIVE"),
        rows.reservation(),
        rows.reserved_share(),
        rows.claim("CLAIMED", "GPU-b", memory_mb=40960),
        models.LeaseEventRow(
            id=1, lease_id="ACTIVE", at=rows.second(2), event="claim", status="CLAIMED", detail="d"
        ),
        models.ProcessRow(program="gsaas-api", host="c1", release="1", seen_at=rows.second(3)),
        models.SettingRow(name="default_policy", value="best-fit", updated_at=rows.second(3)),
    ]
    return [row for row in made if row.__tablename__ in there]


def contents(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Return every row of every table, read without the models."""
    found = sqlalchemy.MetaData()
    found.reflect(database.engine)
    with database.engine.connect() as connection:
        return {
            name: sorted(
                (dict(row) for row in connection.execute(table.select()).mappings()), key=repr
            )
            for name, table in found.tables.items()
            if name != "alembic_version"
        }


@pytest.mark.parametrize(("before", "after"), list(itertools.pairwise(REVISIONS)))
def test_a_migration_keeps_the_data_of_the_revision_before_it(
    database_url: str, before: str, after: str
):
    migration.upgrade(database_url, before)
    database = Database.open(database_url)
    there = set(sqlalchemy.inspect(database.engine).get_table_names())
    rows.insert_as_before(database, *data(there))
    old = contents(database)
    assert all(old[table] for table in old), "a table without data"
    migration.upgrade(database, after)
    new = contents(database)
    for table, known in old.items():
        kept = [name for name in known[0] if (table, name) not in CHANGED.get(after, set())]
        assert _of(new[table], kept) == _of(known, kept), table
    migration.upgrade(database)
    with database.reading() as connection:
        found = leases.page(connection, limit=10)
        assert {lease.id for lease in found} == set(Status) - {Status.RELEASED}
        assert leases.get(connection, "ACTIVE").claims[0].gpu.host_name == "gpu1"
        assert leases.get(connection, "RELEASED").released_at == rows.second(9)
    database.close()


def _of(table: list[dict[str, Any]], names: list[str]) -> list[list[Any]]:
    """Return the values of some columns; those of a time, as SQLite stores it, and of JSON are text."""
    return sorted(([row[name] for name in names] for row in table), key=repr)


@pytest.mark.parametrize("name", FROZEN)
def test_a_migration_that_databases_have_been_through_is_never_changed(name: str):
    content = (MIGRATIONS / "versions" / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == FROZEN[name]
