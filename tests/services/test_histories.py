# SPDX-License-Identifier: Apache-2.0
"""What clients ask in seeded worlds (`tests/world`) gets the same answers from MariaDB and PostgreSQL as from SQLite.

Each history is asked again, one request after the other, through the API's own classes. Ids and times differ, so they
are compared by where they come again, and not by what they are.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_utils import timeutils

from gsaas.api import microversions
from gsaas.api.idempotency import HEADER as KEY
from gsaas.db import endpoints, gpus, migration, models
from gsaas.db.database import Database
from gsaas.objects.gpu_report import GpuInfo
from tests.api.world import World
from tests.support.databases import Server

pytestmark = pytest.mark.services

REPOSITORY = Path(__file__).resolve().parents[2]
HISTORIES, OPERATIONS = 50, 15
MOST_REQUESTS = 40
"""Of one history."""
SETTLED_EVERY = 4
"""Requests after which the engine has done all that it can."""
OTHERS = (
    *("/environment", "/readings", "/v1/grants/", "/v1/vendordata", "/v1/endpoints", "timeout="),
    *("/metrics", "/healthcheck"),
)
"""In paths of answers that are secret, that come late, or that are about processes, agents and servers."""
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
NAME = re.compile(r"\b(lease|reservation)-[0-9a-f]{8}\b")
"""What is called by the beginning of its id, because nobody has named it."""
MASKED = re.compile(r"\b169\.254\.\d+\.\d+\b")
"""Addresses of programs, which are drawn."""
UNLIKE = ("timings", "GSAAS_GRANT", "generation", "estimate_seconds")
"""What follows from clocks, or from how long ago an estimate was made."""
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z| UTC)?")
PERIOD = re.compile(r"\b\d+(\.\d+)? s\b")

Asked = dict[str, Any]


@pytest.fixture(scope="module")
def histories() -> list[list[Asked]]:
    """What was asked in worlds, which run in a process of their own, because they replace its clocks and threads."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.world.recorded", str(HISTORIES), str(OPERATIONS)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    )
    found: list[list[Asked]] = json.loads(ran.stdout)
    return [
        [each for each in history if not any(other in each["path"] for other in OTHERS)]
        for history in found
    ]


@pytest.fixture(scope="module")
def expected(
    histories: list[list[Asked]], sqlite_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> list[Any]:
    """SQLite's answers."""
    return list(answers(sqlite_server, histories, tmp_path_factory.mktemp("histories")))


@pytest.mark.parametrize("kind", ["mariadb", "postgresql"])
def test_histories_get_the_same_answers(
    kind: str,
    histories: list[list[Asked]],
    expected: list[Any],
    request: pytest.FixtureRequest,
    tmp_path: Path,
):
    assert len(histories) == HISTORIES
    statuses = {status for history in expected for _, status, _ in history}
    assert {200, 201, 202, 404, 409} <= statuses
    found = answers(request.getfixturevalue(f"{kind}_server"), histories, tmp_path)
    for wanted, got in zip(expected, found, strict=True):
        for each in zip(got, wanted, strict=True):
            assert each[0] == each[1]


def answers(server: Server, histories: list[list[Asked]], folder: Path) -> Iterator[Any]:
    """Yield the answers to each history, from a database that has nothing of the others."""
    name = server.unused_name()
    url = server.create(name)
    migration.upgrade(url)
    database = Database.open(url)
    for history in histories:
        with database.write() as session:
            register(session)
        api = World.build(folder, database=database, settings="[quotas]\ncgpus = 5\n")
        yield list(ask(api, history[:MOST_REQUESTS]))
        with database.write() as session:
            for table in reversed(models.Base.metadata.sorted_tables):
                session.execute(table.delete())
    database.close()
    server.drop(name)


def register(session: Any) -> None:
    """Register the hosts and GPUs of a world."""
    for number, host in enumerate(("gpu1", "gpu2"), start=11):
        infos = [
            GpuInfo(f"GPU-{host}-{index}", index, "Quadro M4000", 8192, 8308 + index)
            for index in range(2)
        ]
        gpus.register(session, host, f"192.168.50.{number}", infos)
    for host in ("compute1", "compute2", "gpu1", "gpu2"):
        endpoints.register(session, host, {"bindings": {}, "problems": []})


def ask(api: World, history: list[Asked]) -> Iterator[tuple[str, int, Any]]:
    """Yield what was asked, and what was answered, without what differs each time."""
    here: dict[str, str] = {}
    """Id in the world -> id here."""
    names: dict[str, str] = {}
    for number, asked in enumerate(history, start=1):
        path, body = (as_here(each, asked, here) for each in (asked["path"], asked["body"]))
        headers = {microversions.HEADER: f"gpu-scheduling {asked['version']}"}
        if asked["key"]:
            headers[KEY] = asked["key"]
        answer = api.call(asked["caller"], asked["method"], path, body, headers=headers)
        if asked["made"] and answer.status_code < 300:
            noun = path.rpartition("/")[2].removesuffix("s")
            here.setdefault(asked["made"], answer.json[noun]["id"])
        if number % SETTLED_EVERY == 0:
            api.engine.settle()
        yield f"{asked['method']} {asked['path']}", answer.status_code, said(answer.json, names)


def as_here(value: Any, asked: Asked, here: dict[str, str]) -> Any:
    """Return a path or a body with the ids that there are here, and with times as far from now as they were there."""
    text = json.dumps(value)
    text = UUID.sub(lambda found: here.get(found[0], found[0]), text)
    later = timeutils.utcnow() - datetime.datetime.fromisoformat(asked["began_at"])

    def moved(found: re.Match[str]) -> str:
        return f"{datetime.datetime.fromisoformat(found[0][:19]) + later:%Y-%m-%dT%H:%M:%SZ}"

    return json.loads(TIME.sub(moved, text))


def comes_in_order_of_ids(value: Any) -> bool:
    """Return whether *value* is an id, or a lease that is to leave a host."""
    return isinstance(value, str) or (isinstance(value, dict) and value.keys() == {"id", "waits"})


def said(value: Any, names: dict[str, str]) -> Any:
    """Return an answer with a name for each id, and without what clocks say."""
    if isinstance(value, dict):
        return {key: said(each, names) for key, each in value.items() if key not in UNLIKE}
    if isinstance(value, list):
        found = [said(each, names) for each in value]
        # Ids come in their own order, which is drawn; so do the leases that are to leave a host.
        return sorted(found, key=json.dumps) if all(map(comes_in_order_of_ids, found)) else found
    if isinstance(value, float):
        return "some"
    if not isinstance(value, str):
        return value
    for drawn in (UUID, NAME, MASKED):
        value = drawn.sub(lambda found: names.setdefault(found[0], f"name {len(names)}"), value)
    return PERIOD.sub("some time", TIME.sub("then", value))
