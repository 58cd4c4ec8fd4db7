# SPDX-License-Identifier: Apache-2.0
"""Texts are equal only if all of their characters are, on every database: spaces at the end, case and forms count."""

from __future__ import annotations

import unicodedata
import uuid
from pathlib import Path
from urllib.parse import quote

import pytest
import sqlalchemy
from oslo_db import exception as db_exception
from sqlalchemy.orm import Session

from gsaas import exceptions
from gsaas.db import gpus, hosts, leases, migration, models, projects, reservations
from gsaas.db.database import Database
from tests.api.world import World, fill
from tests.support import catalogue, rows
from tests.support.databases import MariaDB

pytestmark = pytest.mark.services

SPELLINGS = ("{} ", "{}  ", " {}", "{}\N{NO-BREAK SPACE}", "{}\N{ZERO WIDTH JOINER}")
"""Texts that some way of comparing takes for what is put into them."""


@pytest.fixture
def world(tmp_path: Path, database: Database) -> World:
    fill(database)
    return World.build(tmp_path, database=database)


NEW = {"OpenStack-API-Version": "gpu-scheduling latest"}


def status(world: World, method: str, path: str, body: object = None) -> int:
    response = world.call("admin", method, quote(path), body, headers=NEW)
    code: int = response.status_code
    return code


@pytest.mark.parametrize("spelling", [*SPELLINGS, "{{{}}}", "urn:uuid:{}"])
def test_a_lease_answers_to_its_id_and_to_no_other_spelling(world: World, spelling: str):
    lease_id = world.launch()["id"]
    own, other = f"/v1/leases/{lease_id}", f"/v1/leases/{spelling.format(lease_id)}"
    before = world.call("admin", "GET", own).json
    assert [
        status(world, "GET", other),
        status(world, "GET", f"{other}/environment"),
        status(world, "POST", f"{other}/keepalive"),
        status(world, "PATCH", other, {"lease": {"name": "mine"}}),
        status(world, "DELETE", other),
    ] == [404] * 5
    assert world.call("admin", "GET", own).json == before


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_gpus_and_hosts_answer_to_their_names_only(world: World, spelling: str):
    for path, noun in (("/v1/gpus/GPU-0001-0", "gpu"), ("/v1/hosts/gpu1", "host")):
        assert status(world, "GET", path) == 200
        other = spelling.format(path)
        assert status(world, "GET", other) == 404
        assert status(world, "PATCH", other, {noun: {"disabled": True}}) == 404
    assert status(world, "GET", spelling.format("/v1/endpoints/gpu1")) == 404


COMPOSED = "tr\u00e4ining"
NAMES = (
    *("job", "job ", "job  ", " job", "Job", "JOB", "job\N{ZERO WIDTH JOINER}"),
    *(COMPOSED, unicodedata.normalize("NFD", COMPOSED), "training", "stra\u00dfe", "strasse"),
)


def test_a_filter_finds_leases_with_exactly_that_name(world: World):
    for name in NAMES:
        lease = {"name": name, "cgpus": {"count": 1, "memory_mb": 1, "mode": "shared"}}
        assert world.call("member", "POST", "/v1/leases", {"lease": lease}).status_code == 202
    for name in NAMES:
        found = world.call("member", "GET", "/v1/leases", query_string={"name": name})
        assert [lease["name"] for lease in found.json["leases"]] == [name]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_other_filters_markers_and_reservations_are_exact_too(world: World, spelling: str):
    lease_id, server_id = world.launch()["id"], str(uuid.uuid4())
    with world.database.writing() as connection:
        leases.update(connection, lease_id, server_id=server_id)
    reservation = {"cgpus": {"count": 1}, "end": "2999-01-01T00:00:00Z"}
    path = "/v1/reservations"
    made = world.call("member", "POST", path, {"reservation": reservation}, headers=NEW)
    reserved = made.json["reservation"]["id"]

    def found(**query: str) -> object:
        response = world.call("member", "GET", "/v1/leases", query_string=query)
        return len(response.json["leases"]) if response.status_code == 200 else 400

    assert found(server_id=server_id) == 1
    assert found(server_id=spelling.format(server_id)) == 0
    assert found(marker=lease_id) == 0  # nothing comes after it
    assert found(marker=spelling.format(lease_id)) == 400
    launch = {"cgpus": {"count": 1}, "server": {}, "reservation": spelling.format(reserved)}
    refused = world.call("member", "POST", "/v1/leases", {"lease": launch}, headers=NEW)
    assert refused.status_code == 404


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_queries_are_exact_whoever_asks(database: Database, spelling: str):
    """Ids come over the message bus and from other services, too."""
    fill(database)
    with database.write() as session:
        session.add(rows.lease("a-lease", project_id="blue"))
        session.add(rows.reservation("a-reservation", project_id="blue"))
    with database.read() as session:
        connection = session.connection()

        def other(text: str) -> str:
            return spelling.format(text)

        with pytest.raises(exceptions.NotFound):
            leases.get(connection, other("a-lease"))
        with pytest.raises(exceptions.NotFound):
            reservations.get(connection, other("a-reservation"))
        with pytest.raises(exceptions.NotFound):
            hosts.get(session, other("gpu1"))
        with pytest.raises(exceptions.NotFound):
            gpus.get(session, other("GPU-0001-0"))
        assert leases.page(connection, project_id=other("blue"), limit=9) == []
        assert leases.ids_of(connection, [other("a-lease")], []) == []
        assert leases.bound_to(connection, other("gpu1")) == []
    with database.writing() as connection:
        for project in ("blue", other("blue")):
            projects.lock(connection, project)
        known = set(connection.scalars(sqlalchemy.select(models.ProjectRow.id)))
    assert known == {"blue", other("blue")}


def test_a_database_with_rows_is_migrated_and_keeps_its_foreign_keys(database_url: str):
    migration.upgrade(database_url, "0014")
    database = Database.open(database_url)
    rows.insert_as_before(database, rows.host(), rows.gpu(change_number=1), rows.lease("a"))
    assert leases_named(database, "a ") == (["a"] if is_mysql(database) else [])
    migration.upgrade(database)
    migration.upgrade(database)  # again does nothing
    assert leases_named(database, "a ") == []
    assert leases_named(database, "a") == ["a"]
    for orphan in (
        models.LeaseEventRow(lease_id="a ", event="e", status="ACTIVE"),
        models.EndpointRow(host_name="gpu1 "),
        rows.claim("a "),
    ):
        with (
            pytest.raises((db_exception.DBReferenceError, db_exception.DBError)),
            database.write() as session,
        ):
            session.add(orphan)
    with Session(database.engine) as session:
        session.delete(session.get(models.HostRow, "gpu1"))
        with pytest.raises(db_exception.DBError):
            session.flush()
    migration.downgrade(database, "0014")
    assert leases_named(database, "a ") == (["a"] if is_mysql(database) else [])
    database.close()


def test_a_migration_that_was_interrupted_goes_on(mariadb_server: MariaDB):
    """MariaDB does not undo what it has done of it."""
    name = mariadb_server.unused_name()
    database = Database.open(mariadb_server.create(name))
    migration.upgrade(database)
    whole = catalogue.schema(database.engine)
    migration.downgrade(database, "0014")
    with database.engine.connect() as connection:
        for statement in (
            "ALTER TABLE claims DROP FOREIGN KEY fk_claims_lease_id_leases",
            "ALTER TABLE lease_events DROP FOREIGN KEY fk_lease_events_lease_id_leases",
            "ALTER TABLE settings CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin",
        ):
            connection.exec_driver_sql(statement)
    migration.upgrade(database)
    database.close()
    database = Database.open(mariadb_server.url(name))
    for table, definition in catalogue.schema(database.engine).items():
        if table != "settings":  # CONVERT has changed its JSON as well
            assert definition == whole[table]
    database.close()
    mariadb_server.drop(name)


def is_mysql(database: Database) -> bool:
    return database.engine.dialect.name == "mysql"


def leases_named(database: Database, lease_id: str) -> list[str]:
    with database.reading() as connection:
        query = sqlalchemy.text("SELECT id FROM leases WHERE id = :id")
        return list(connection.scalars(query, {"id": lease_id}))
