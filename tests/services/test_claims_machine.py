# SPDX-License-Identifier: Apache-2.0
"""The machine of `tests.unit.gpgpums.test_claims_machine` on real database servers, with fewer steps.

One of the servers is a Galera cluster, with a worker at each node. There a step begins when all nodes have the same
rows, because the machine expects what the plain rules say of the database as it is: `wsrep_sync_wait` alone has let a
node read what it had before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from gsaas.db import migration, models
from gsaas.db.database import Database
from tests.support.databases import Server
from tests.support.galera import cluster
from tests.support.waiting import until
from tests.unit.gpgpums.test_claims_machine import Books

pytestmark = pytest.mark.services

SOME = settings(
    max_examples=6,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
WAITS_FOR_ALL = 7
"""The value of MariaDB's `wsrep_sync_wait` with which every statement sees what any node has committed."""


@pytest.fixture(scope="module")
def galera_servers() -> Iterator[Sequence[Server]]:
    with cluster() as nodes:
        yield nodes


@pytest.fixture(params=["mariadb", "postgresql", "galera"])
def databases(request: pytest.FixtureRequest) -> Iterator[list[Database]]:
    """A database as each of its servers has it: of a cluster, both nodes."""
    if request.param == "galera":
        servers = request.getfixturevalue("galera_servers")
        options = {"mysql_wsrep_sync_wait": WAITS_FOR_ALL}
    else:
        servers, options = [request.getfixturevalue(f"{request.param}_server")], {}
    name = servers[0].unused_name()
    migration.upgrade(servers[0].create(name))
    opened = [Database.open(server.url(name), **options) for server in servers]
    for database in opened:
        until(lambda database=database: migration.version(database) == migration.head())
    yield opened
    for database in opened:
        database.close()
    servers[0].drop(name)


def test_any_sequence_keeps_the_books_right(databases: list[Database]):
    class BooksOnServers(Books):
        def open(self) -> Sequence[Database]:
            with databases[0].write() as session:
                for table in reversed(models.Base.metadata.sorted_tables):
                    session.execute(table.delete())
            return databases

        def rows(self) -> list[tuple]:
            """Return them as soon as all nodes have the same: the one that wrote last has them at once."""

            def all_the_same() -> list[list[tuple]] | None:
                found = [self.rows_of(database) for database in databases]
                return found if all(rows == found[0] for rows in found) else None

            return until(all_the_same, "all nodes to have the same rows")[0]

        @invariant()
        def every_node_has_everything(self) -> None:
            self.rows()

        def close(self) -> None:
            """Leave the connections open: the next sequence uses them."""

    run_state_machine_as_test(BooksOnServers, settings=SOME)
