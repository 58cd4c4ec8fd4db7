# SPDX-License-Identifier: Apache-2.0
"""Real database servers, started when the first test asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gsaas.db import migration, models
from gsaas.db.database import Database
from tests.support.databases import MariaDB, PostgreSQL, Server, Sqlite


@pytest.fixture(scope="session")
def sqlite_server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return Sqlite(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Server]:
    with MariaDB() as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    with PostgreSQL() as server:
        yield server


@pytest.fixture(scope="session")
def sqlite_url(sqlite_server: Server) -> str:
    return sqlite_server.create("gsaas")


@pytest.fixture(scope="session")
def mariadb_url(mariadb_server: Server) -> str:
    return mariadb_server.create("gsaas")


@pytest.fixture(scope="session")
def postgresql_url(postgresql_server: Server) -> str:
    return postgresql_server.create("gsaas")


@pytest.fixture(params=["sqlite", "mariadb", "postgresql"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each kind of database server in turn."""
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
def database_url(server: Server) -> Iterator[str]:
    """An empty database of its own for one test, without tables."""
    name = server.unused_name()
    yield server.create(name)
    server.drop(name)


@pytest.fixture(scope="session")
def migrated() -> Iterator[dict[Server, Database]]:
    """The servers' databases with all tables, made when first asked for."""
    databases: dict[Server, Database] = {}
    yield databases
    for database in databases.values():
        database.close()


@pytest.fixture
def database(server: Server, migrated: dict[Server, Database]) -> Iterator[Database]:
    """A database with all tables, and nothing in them before and after the test."""
    if server not in migrated:
        url = server.create("emptied")
        migration.upgrade(url)
        migrated[server] = Database.open(url)
    yield migrated[server]
    with migrated[server].write() as session:
        for table in reversed(models.Base.metadata.sorted_tables):
            session.execute(table.delete())
