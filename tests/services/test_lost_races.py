# SPDX-License-Identifier: Apache-2.0
"""A transaction that a database server ends because of others, or whose connection it closes, is made again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy
from oslo_db import exception as db_exception
from sqlalchemy import Connection

from gsaas.db import leases, migration
from gsaas.db.database import Database
from gsaas.db.models import LeaseRow
from tests.support import rows
from tests.support.databases import PostgreSQL

pytestmark = pytest.mark.services

KILL = {"mysql": "KILL CONNECTION {}", "postgresql": "SELECT pg_terminate_backend({})"}
OWN_ID = {"mysql": "SELECT CONNECTION_ID()", "postgresql": "SELECT pg_backend_pid()"}


@pytest.fixture(params=["mariadb", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database of a server, with one lease; PostgreSQL's serializes transactions as an administrator may want it."""
    server = request.getfixturevalue(f"{request.param}_server")
    name = server.unused_name()
    url = server.create(name)
    migration.upgrade(url)
    database = Database.open(url)
    if request.param == "postgresql":
        with database.engine.connect() as connection:
            level = f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"
            connection.exec_driver_sql(level)
            connection.commit()
        database.close()
        database = Database.open(url)
    with database.write() as session:
        session.add(rows.lease("lease-1", name="before"))
    yield database
    database.close()
    server.drop(name)


def kill(database: Database, connection: Connection) -> None:
    """Have the server close a connection, as a proxy in front of it does when it moves to another one."""
    kind = database.engine.dialect.name
    number = connection.exec_driver_sql(OWN_ID[kind]).scalar()
    with database.engine.connect() as other:
        other.exec_driver_sql(KILL[kind].format(number))


def name_of(database: Database) -> str:
    with database.reading() as connection:
        return leases.get(connection, "lease-1").name


def test_a_change_whose_connection_is_lost_is_made_again(database: Database):
    calls: list[int] = []

    def act(connection: Connection) -> None:
        calls.append(1)
        lease = leases.lock(connection, "lease-1")
        if len(calls) == 1:
            kill(database, connection)
        leases.write(connection, lease.with_(name=f"{lease.name}, after"), "name")

    database.change(act)
    assert len(calls) == 2
    assert name_of(database) == "before, after"


def test_a_connection_that_is_lost_in_the_commit_is_reported(database: Database):
    """Whether the change is stored is not known then: it is not made twice."""
    calls: list[int] = []

    def act(connection: Connection) -> None:
        calls.append(1)
        leases.update(connection, "lease-1", name="after")
        sqlalchemy.event.listen(
            connection, "commit", lambda _: kill(database, connection), once=True
        )

    with pytest.raises(db_exception.DBConnectionError):
        database.change(act)
    assert len(calls) == 1


def test_a_change_that_cannot_be_serialized_is_made_again(database: Database):
    """On MariaDB the second transaction sees what the first has committed, and is not refused."""
    calls: list[int] = []

    def act(connection: Connection) -> None:
        calls.append(1)
        connection.scalar(sqlalchemy.select(LeaseRow.name))  # its snapshot
        if len(calls) == 1:
            with database.engine.begin() as other:
                other.exec_driver_sql("UPDATE leases SET name = 'between'")
        lease = leases.lock(connection, "lease-1")
        leases.write(connection, lease.with_(name=f"{lease.name}, after"), "name")

    database.change(act)
    assert len(calls) == (2 if database.engine.dialect.name == "postgresql" else 1)
    assert name_of(database) == "between, after"


def test_a_lock_timeout_of_postgresql_is_a_lost_race(postgresql_server: PostgreSQL):
    name = postgresql_server.unused_name()
    url = postgresql_server.create(name)
    migration.upgrade(url)
    database = Database.open(url)
    with database.write() as session:
        session.add(rows.lease("lease-1"))
    holder: Any = database.engine.connect()
    holder.exec_driver_sql("SELECT 1 FROM leases FOR UPDATE")
    calls: list[int] = []

    def act(connection: Connection) -> None:
        calls.append(1)
        if len(calls) > 1:
            holder.rollback()
        connection.exec_driver_sql("SET LOCAL lock_timeout = '10ms'")
        leases.update(connection, "lease-1", name="after")

    database.change(act)
    assert len(calls) == 2
    holder.close()
    database.close()
    postgresql_server.drop(name)
