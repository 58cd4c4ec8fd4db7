"""Real database servers, started when the first test asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gsaas.db import migration
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
    """An empty database of its own for one test."""
    name = server.unused_name()
    yield server.create(name)
    server.drop(name)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database of its own with all tables, empty."""
    migration.upgrade(database_url)
    database = Database.open(database_url)
    yield database
    database.close()
