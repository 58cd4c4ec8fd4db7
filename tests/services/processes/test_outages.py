# SPDX-License-Identifier: Apache-2.0
"""A database server that is away: each request is answered with status 503, and answered again when it is back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import sqlalchemy
from oslo_db import exception as db_exception

from gsaas.api.route import Route
from gsaas.api.routes import ROUTES
from gsaas.db import migration, pooling
from gsaas.db.database import Database
from tests.api.test_personas import BODIES
from tests.api.world import World, address, fill, only_error
from tests.support.databases import Daemon, MariaDB, PostgreSQL
from tests.support.galera import DEFAULT, Node, alone, cluster, frozen

pytestmark = pytest.mark.services

WITHOUT_DATABASE = {"/", "/v1", "/v1/openapi.json", "/v1/vendordata"}
"""Vendor data of servers which ask for no cGPUs, as all do by default."""


@pytest.fixture(scope="module", params=[MariaDB, PostgreSQL], ids=lambda kind: kind.program)
def server(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A server of its own, because it is stopped."""
    with request.param() as server:
        yield server


@pytest.fixture(scope="module")
def world(server: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_on(server, tmp_path_factory.mktemp("world")) as world:
        yield world


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[Node, Node]]:
    """Galera as it is if nobody sets its periods: a node that stands still for some seconds is missed."""
    with cluster(DEFAULT) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def clustered(
    nodes: tuple[Node, Node], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """An API at the first node."""
    with world_on(nodes[0], tmp_path_factory.mktemp("clustered")) as world:
        yield world


@contextmanager
def world_on(server: Daemon, folder: Path) -> Iterator[World]:
    url = server.create("outage")
    migration.upgrade(url)
    database = Database.open(url)
    fill(database)
    settings = "[grants]\nkey = test:" + "dGVz" * 11 + "\n"
    yield World.build(folder, settings=settings, database=database)
    database.close()


def ask(world: World, route: Route, lease_id: str):
    body = BODIES.get((route.method, route.path))
    path = address(route, lease_id=lease_id, name="none" if route.method == "DELETE" else "gpu1")
    newest = {"OpenStack-API-Version": "gpu-scheduling latest"}
    return world.call("admin", route.method, path, body, headers=newest)


@pytest.mark.parametrize("end", [Daemon.stop, Daemon.kill])
def test_every_route_answers_503_without_the_database_and_works_again_with_it(
    server: Daemon, world: World, end: Callable[[Daemon], None]
):
    check_every_route(world, lambda: end(server), server.start)


def test_every_route_answers_503_at_a_node_that_has_lost_its_cluster_and_works_again_with_it(
    nodes: tuple[Node, Node], clustered: World
):
    with ExitStack() as outage:
        check_every_route(clustered, lambda: outage.enter_context(alone(*nodes)), outage.close)


def check_every_route(world: World, begin: Callable[[], object], end: Callable[[], object]) -> None:
    """Check what each route answers before, during and after an outage that *begin* and *end* make."""
    lease_id = world.launch("admin", mode="shared", memory_mb=1)["id"]
    routes = [route for route in ROUTES if route.path != "/v1/grants/redeem"]
    before = {route: ask(world, route, lease_id).status_code for route in routes}
    assert [route.path for route in routes if before[route] >= 500] == []
    begin()
    try:
        for route in routes:
            response = ask(world, route, lease_id)
            if route.path in WITHOUT_DATABASE:
                assert response.status_code == route.returns.status
            else:
                assert response.status_code == 503, (route.method, route.path, response.json)
                expected = (
                    "gsaas.unhealthy"
                    if route.path == "/healthcheck"
                    else "gsaas.database.unreachable"
                )
                if route.path != "/metrics":
                    assert only_error(response)["code"] == expected, route.path
    finally:
        end()
    assert world.call(None, "GET", "/healthcheck").status_code == 200
    assert world.launch("member", mode="shared", memory_mb=1)["status"] == "CLAIMED"
    after = {route: ask(world, route, lease_id).status_code for route in routes}
    assert [route.path for route in routes if after[route] >= 500] == []


@pytest.mark.parametrize("unchecked", [3600, 0], ids=["just used", "idle"])
def test_connections_are_opened_anew_when_the_server_was_started_again_between_two_transactions(
    server: Daemon, world: World, unchecked: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pooling, "UNCHECKED", unchecked)
    one = sqlalchemy.text("SELECT count(*) FROM leases")
    with world.database.reading() as first, world.database.reading() as second:
        first.execute(one)
        second.execute(one)
    server.stop()
    server.start()
    with world.database.reading() as first, world.database.reading() as second:
        assert first.scalar(one) is not None
        assert second.scalar(one) is not None


@pytest.mark.parametrize("end", [Daemon.stop, Daemon.kill])
@pytest.mark.parametrize("how", ["reading", "writing"])
def test_a_server_that_ends_within_a_transaction_is_away_and_not_a_bug(
    server: Daemon, world: World, end: Callable[[Daemon], None], how: str
):
    one = sqlalchemy.text("SELECT count(*) FROM leases")
    try:
        with (
            pytest.raises(db_exception.DBConnectionError),
            getattr(world.database, how)() as connection,
        ):
            connection.execute(one)
            end(server)
            connection.execute(one)
    finally:
        server.start()
    with getattr(world.database, how)() as connection:
        assert connection.scalar(one) is not None


def test_a_server_that_ends_before_a_commit_is_away(server: Daemon, world: World):
    try:
        with pytest.raises(db_exception.DBConnectionError), world.database.writing() as connection:
            connection.execute(sqlalchemy.text("DELETE FROM projects"))
            server.kill()
    finally:
        server.start()


def test_a_node_that_loses_its_cluster_before_a_commit_is_away(
    nodes: tuple[Node, Node], clustered: World
):
    with (
        ExitStack() as outage,
        pytest.raises(db_exception.DBConnectionError, match="1180"),
        clustered.database.writing() as connection,
    ):
        connection.execute(sqlalchemy.text("INSERT INTO projects (id, serial) VALUES ('p', 1)"))
        outage.enter_context(frozen(*nodes))
    with clustered.database.reading() as connection:
        assert connection.scalar(sqlalchemy.text("SELECT 1")) == 1
