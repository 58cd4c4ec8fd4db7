# SPDX-License-Identifier: Apache-2.0
"""Migrations leave the tables that the code works with, on every database that GSaaS supports."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from oslo_db.exception import DBError
from sqlalchemy import select

from gsaas.db import gpu_writers, migration, models
from gsaas.db.database import Database
from gsaas.objects.change_numbers import PER_WRITER
from gsaas.objects.request import Request
from tests.support import catalogue, rows
from tests.support.databases import Server
from tests.support.scheduling import open_claims

pytestmark = pytest.mark.services


@pytest.fixture
def database(database_url: str):
    """A database that was migrated for one test."""
    migration.upgrade(database_url)
    database = Database.open(database_url)
    yield database
    database.close()


@pytest.fixture
def modelled(server: Server):
    """A database whose tables were made from the models, without a migration."""
    name = server.unused_name()
    database = Database.open(server.create(name))
    models.Base.metadata.create_all(database.engine)
    yield database
    database.close()
    server.drop(name)


def test_migrated_tables_are_those_of_the_models(database: Database, modelled: Database):
    assert catalogue.schema(database.engine) == catalogue.schema(modelled.engine)


def test_alembic_finds_nothing_left_to_migrate(database: Database):
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, models.Base.metadata) == []


def test_every_check_of_the_models_is_kept_by_the_database(database: Database):
    wanted = {
        check.name
        for table in models.Base.metadata.tables.values()
        for check in table.constraints
        if isinstance(check, sqlalchemy.CheckConstraint)
    }
    assert catalogue.checks(database.engine) == wanted


def test_a_new_database_has_no_revision(database_url: str):
    assert migration.version(database_url) is None


def test_upgrading_twice_changes_nothing(database: Database):
    before = catalogue.schema(database.engine)
    migration.upgrade(database)
    assert catalogue.schema(database.engine) == before
    assert migration.version(database) == migration.head()


def test_four_upgrades_at_once_are_one(database_url: str):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migration.upgrade, [database_url] * 4))
    assert migration.version(database_url) == migration.head()


@pytest.mark.parametrize("server", ["mariadb", "postgresql"], indirect=True)
def test_an_upgrade_waits_until_another_one_is_committed(database_url: str):
    first = Database.open(database_url)
    with ThreadPoolExecutor(1) as pool:
        second: list[Future[None]] = []

        @sqlalchemy.event.listens_for(first.engine, "commit")
        def begin_another(_: sqlalchemy.Connection) -> None:
            if not second:
                second.append(pool.submit(migration.upgrade, database_url))
                wait(second, timeout=1)  # for what must not happen now

        migration.upgrade(first)
        second[0].result()
    first.close()
    assert migration.version(database_url) == migration.head()


def test_an_upgrade_removes_the_passwords_of_leases_whose_servers_exist(database: Database):
    migration.downgrade(database, "0003")
    asked = {"adminPass": "secret", "user_data": "c2VjcmV0"}
    statuses = {"QUEUED": asked, "CLAIMED": asked, "ACTIVE": {}, "RELEASED": {}, "ERROR": {}}
    more = {
        "QUEUED": {"queued_at": rows.second(1)},
        "ACTIVE": {"server_id": "s1"},
        "RELEASED": {"released_at": rows.second(2)},
        "ERROR": {"fault_message": "it failed"},
    }
    rows.insert_as_before(
        database,
        *(
            rows.lease(status, status=status, server_request=asked, **more.get(status, {}))
            for status in statuses
        ),
    )
    migration.upgrade(database)
    with database.read() as session:
        found = session.query(models.LeaseRow.id, models.LeaseRow.server_request).all()
    assert dict(map(tuple, found)) == statuses


@pytest.mark.parametrize(
    ("statement", "nth"), [("UPDATE leases", 2), ("CREATE INDEX", 1), ("UPDATE alembic", 1)]
)
def test_an_upgrade_that_failed_at_any_point_can_be_repeated(
    database: Database, statement: str, nth: int
):
    """Above all on MariaDB, which keeps what was done before the failure."""
    migration.downgrade(database, "0003")
    more = {"status": "RELEASED", "released_at": rows.second(2)}
    rows.insert_as_before(
        database,
        *(
            rows.lease(f"{number}", server_request={"adminPass": "secret"}, **more)
            for number in range(600)  # more than one batch
        ),
    )
    seen = []

    def fail(_connection, _cursor, sql, *_):
        if sql.startswith(statement):
            seen.append(sql)
            if len(seen) == nth:
                raise ConnectionError(sql)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", fail)
    with pytest.raises((ConnectionError, DBError)):
        migration.upgrade(database)
    sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", fail)
    assert migration.version(database) == "0003"
    migration.upgrade(database)
    assert migration.version(database) == migration.head()
    with database.read() as session:
        found = session.query(models.LeaseRow.server_request).all()
    assert [each for (each,) in found] == [{}] * 600


@pytest.mark.parametrize("server", ["mariadb"], indirect=True)
def test_an_upgrade_that_failed_at_any_statement_leaves_the_same_tables_when_it_is_repeated(
    database: Database, modelled: Database
):
    left = 0

    def fail(_connection, _cursor, sql, *_):
        nonlocal left
        if sql.lstrip().startswith(("ALTER", "CREATE", "UPDATE alembic")):
            left -= 1
            if left == 0:
                raise ConnectionError(sql)

    def back_to(revision: str):
        migration.downgrade(database, revision)
        with database.engine.connect() as connection:
            # Otherwise columns that were dropped still count for the size of a row.
            connection.exec_driver_sql("ALTER TABLE leases FORCE")

    before = "0008"
    back_to(before)
    while before != migration.head():
        revision, failures = f"{int(before) + 1:04}", 0
        migration.upgrade(database, revision)
        expected = catalogue.schema(database.engine)
        while True:
            back_to(before)
            left = failures + 1
            sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", fail)
            try:
                migration.upgrade(database, revision)
                break  # it has fewer statements
            except (ConnectionError, DBError):
                failures += 1
            finally:
                sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", fail)
            migration.upgrade(database, revision)
            assert catalogue.schema(database.engine) == expected
        assert failures > 0
        before = revision
    assert catalogue.schema(database.engine) == catalogue.schema(modelled.engine)


@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
def test_a_migration_whose_lock_is_lost_ends_as_it_would_with_the_lock(
    mariadb_server: Server, caplog: pytest.LogCaptureFixture, fails: bool
):
    name = mariadb_server.unused_name()
    database = Database.open(mariadb_server.create(name))
    cut_off = []

    def cut(_connection, _cursor, sql, *_):
        if "CREATE TABLE leases" in sql and not cut_off:
            with database.engine.connect() as other:
                lock = "SELECT IS_USED_LOCK('gsaas-migration')"
                cut_off.append(other.exec_driver_sql(lock).scalar())
                other.exec_driver_sql(f"KILL {cut_off[0]}")
            if fails:
                raise LookupError("the real error")

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", cut)
    try:
        if fails:
            with pytest.raises(DBError, match="the real error"):
                migration.upgrade(database)
        else:
            migration.upgrade(database)
            assert migration.version(database) == migration.head()
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", cut)
        database.close()
        mariadb_server.drop(name)
    assert cut_off != [None]
    assert "the connection that held the lock of the migration was lost" in caplog.text


def test_downgrading_to_the_base_leaves_no_table_and_the_way_up_open(database: Database):
    migration.downgrade(database, "base")
    assert catalogue.schema(database.engine) == {}
    migration.upgrade(database)
    assert migration.version(database) == migration.head()


def test_gpus_from_before_there_were_change_numbers_are_found_and_claimed(database: Database):
    migration.downgrade(database, "0005")
    with database.engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO hosts (name, gpu_address, disabled, forgotten, monitor_seen_at,"
            " wanted_serial, monitor_problems)"
            " VALUES ('gpu1', '192.0.2.1', false, false, '2999-01-01 00:00:00', 0, '[]')"
        )
        for index in range(2):
            connection.exec_driver_sql(
                "INSERT INTO gpus (uuid, host_name, device_index, model, memory_mb, used_mb, leases,"
                " given, daemon_port, disabled, awaits_operator, generation)"
                f" VALUES ('GPU-{index}', 'gpu1', {index}, 'model', 1000, 0, 0, 0, 8308, false, false,"
                f" {7 + index})"
            )
    migration.upgrade(database)

    old, new = (open_claims(database, attempts=3, heartbeat_timeout=35) for _ in range(2))
    request = Request(1)
    assert old.check(Request(2)).memory_by_gpu() == {"GPU-0": 1000, "GPU-1": 1000}
    lease = rows.new_lease("lease-1", mode="exclusive", memory_mb=None)
    assert new.claim(lease, request).claims[0].gpu_uuid == "GPU-0"
    assert old.check(request).memory_by_gpu() == {"GPU-1": 1000}
    gpu_writers.tidy(database)
    with database.read() as session:
        numbers = session.scalars(select(models.GpuRow.change_number)).all()
    assert min(numbers) >= PER_WRITER
    assert old.check(request).memory_by_gpu() == {"GPU-1": 1000}
