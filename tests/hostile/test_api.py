# SPDX-License-Identifier: Apache-2.0
"""What a member of a project, or anybody who reaches the API, tries against the service and other projects."""

from __future__ import annotations

import datetime
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_utils import timeutils

from gsaas.db import leases, models
from tests.api.world import World, only_error

PASSWORD = "correct-horse-battery-staple"
USER_DATA = b64encode(b"#!/bin/sh\necho very-secret\n").decode()
SECRETS = {"adminPass": PASSWORD, "user_data": USER_DATA}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """The API of a cloud with two GPU hosts of four GPUs with 8192 MiB each."""
    made = World.build(tmp_path)
    yield made
    made.database.close()


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Any]:
    """Return a function that builds such a cloud with settings of its own."""
    made = []

    def build(settings: str) -> World:
        made.append(World.build(tmp_path, settings=settings))
        return made[-1]

    yield build
    for each in made:
        each.database.close()


def launch(world: World, caller: str = "member", **lease: Any) -> Any:
    """Send the launch of a lease and return the response."""
    return world.call(caller, "POST", "/v1/leases", {"lease": {"cgpus": {"count": 1}} | lease})


def stored(world: World) -> str:
    """Return all that is in the database, as text."""
    # A row of SQLAlchemy abridges its long values.
    return repr({name: [tuple(row) for row in rows] for name, rows in world.rows().items()})


# What is left in the database


def test_a_password_is_not_in_the_database_once_the_server_exists(world):
    world.launch(server=SECRETS)
    assert PASSWORD in stored(world)  # the engine needs it
    world.engine.settle()
    for secret in SECRETS.values():
        assert secret not in stored(world)


def test_a_password_is_not_in_the_database_once_a_lease_has_left_the_queue(world):
    for _ in range(8):
        world.launch()
    lease = launch(world, server=SECRETS, wait=None).json["lease"]
    assert (lease["status"], USER_DATA in stored(world)) == ("QUEUED", True)
    world.call("member", "DELETE", f"/v1/leases/{lease['id']}")
    for secret in SECRETS.values():
        assert secret not in stored(world)


def test_a_password_is_not_in_the_database_once_a_launch_has_failed(world):
    lease = world.launch(server=SECRETS)
    world.engine.fail(lease["id"], "boot-server", "no host has room")
    for secret in SECRETS.values():
        assert secret not in stored(world)


def test_bodies_that_wait_fill_no_more_of_the_database_than_allowed(build):
    world = build("[queue]\nmost_kb_per_project = 64\n")
    for _ in range(8):
        world.launch()
    large = {"metadata": {"text": "x" * 30_000}}
    answers = [launch(world, server=large, wait=None) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [202, 202, 403, 403]
    assert only_error(answers[-1])["code"] == "gsaas.queue.too-large"
    assert stored(world).count("x" * 30_000) == 2
    assert launch(world, "stranger", server=large, wait=None).status_code == 202
    assert launch(world, server={}, wait=None).status_code == 202


def test_a_project_that_launches_and_ends_leases_all_day_is_stopped_at_its_bound(build):
    world = build("[api]\nmost_leases_stored = 3\n")
    for _ in range(3):
        lease = launch(world, server=None).json["lease"]
        world.call("member", "DELETE", f"/v1/leases/{lease['id']}")
    error = only_error(launch(world, server=None))
    assert (error["status"], error["code"]) == (403, "gsaas.leases.too-many")
    assert len(world.rows()["leases"]) == 3
    assert launch(world, "stranger", server=None).status_code == 201


def test_a_purge_deletes_what_was_released_long_ago_and_nothing_that_lives(world):
    old, new, alive = (launch(world, server=None).json["lease"]["id"] for _ in range(3))
    for lease_id in (old, new):
        world.call("member", "DELETE", f"/v1/leases/{lease_id}")
    now = timeutils.utcnow()
    with world.database.write() as session:
        for lease_id in (old, alive):
            row = session.get(models.LeaseRow, lease_id)
            row.created_at = row.claimed_at = now - datetime.timedelta(days=100)
        session.get(models.LeaseRow, old).released_at = now - datetime.timedelta(days=99)
    with world.database.writing() as connection:
        assert leases.purge(connection, now - datetime.timedelta(days=90), 10) == 1
    assert {row[0] for row in world.rows()["leases"]} == {new, alive}
    assert old not in stored(world)
