# SPDX-License-Identifier: Apache-2.0
"""A text that a database cannot hold is refused with a reason, not with an internal error."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsaas.db import models
from gsaas.db.database import Database
from tests.api.world import World, fill, only_error
from tests.support.databases import MariaDB, PostgreSQL

pytestmark = pytest.mark.services

NAMES = ("träining", "обучение", "\N{ROCKET}")


def name_leases(folder: Path, url: str) -> dict[str, tuple[int, str]]:
    """Ask for a lease with each of `NAMES`, in a new cloud with the database *url*; return the answers."""
    database = Database.open(url)
    models.Base.metadata.create_all(database.engine)
    fill(database)
    world = World.build(folder, database=database)
    answers = {}
    for name in NAMES:
        lease = {"name": name, "cgpus": {"count": 1}, "server": {}}
        response = world.call("member", "POST", "/v1/leases", {"lease": lease})
        accepted = response.status_code < 400
        said = response.json["lease"]["name"] if accepted else only_error(response)["code"]
        answers[name] = (response.status_code, said)
        found = world.call("member", "GET", "/v1/leases", query_string={"name": name})
        assert found.status_code == (200 if accepted else 400)
    kept = [lease["name"] for lease in world.call("member", "GET", "/v1/leases").json["leases"]]
    assert sorted(kept) == sorted(name for name, (status, _) in answers.items() if status < 400)
    database.close()
    return answers


REFUSED = (400, "gsaas.text.unstorable")


def test_all_of_unicode_is_kept_where_the_database_can(tmp_path: Path, server):
    name = server.unused_name()
    assert name_leases(tmp_path, server.create(name)) == {each: (202, each) for each in NAMES}


def test_a_connection_for_three_bytes_of_utf8_refuses_an_emoji(
    tmp_path: Path, mariadb_server: MariaDB
):
    url = mariadb_server.create(mariadb_server.unused_name(), "CHARACTER SET utf8mb3")
    answers = name_leases(tmp_path, f"{url}&charset=utf8")
    assert [answers[name] for name in NAMES] == [(202, NAMES[0]), (202, NAMES[1]), REFUSED]


def test_a_database_for_western_europe_refuses_the_rest(
    tmp_path: Path, postgresql_server: PostgreSQL
):
    options = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    url = postgresql_server.create(postgresql_server.unused_name(), options)
    answers = name_leases(tmp_path, url)
    assert [answers[name] for name in NAMES] == [(202, NAMES[0]), REFUSED, REFUSED]
