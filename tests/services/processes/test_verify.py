# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage verify` asks a real endpoint and a real monitor over RabbitMQ, and mends what MariaDB has lost.

The engines are stopped while something is damaged: they and the agents would repair most of it by themselves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy

from gsaas.db import migration
from gsaas.db.database import Database
from gsaas.objects.lifecycle import Status
from tests.services.processes.test_bus import HOST, Deployment, Machine
from tests.support.databases import MariaDB
from tests.support.rabbitmq import RabbitMQ
from tests.support.waiting import PATIENCE, until

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace"),
]


class Cloud:
    """A deployment with a lease that is ACTIVE, and the command."""

    def __init__(self, machine: Machine, stored: Database) -> None:
        self.machine, self.stored = machine, stored
        self.deployment = Deployment(stored)
        until(self.deployment.seen, "both agents to report")
        self.lease = self.deployment.claim("lease-1")
        assert self.deployment.reaches(self.lease, Status.ACTIVE)

    def sql(self, *statements: str, **values: Any) -> None:
        with self.stored.write() as session:
            for statement in statements:
                session.execute(sqlalchemy.text(statement), values)

    def verify(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Return the exit status, and what it prints as JSON."""
        machine = self.machine
        done = subprocess.run(
            [
                *("ip", "netns", "exec", machine.name),
                *(sys.executable, "-m", "tests.support.engine_process", str(machine.folder)),
                *("manage", "--config-file", str(machine.settings)),
                *("verify", "-f", "json", "--settle", "0", *words),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    machine = Machine(f"verify-{os.getpid()}", tmp_path_factory.mktemp("verify"))
    try:
        machine.set_up()
        with RabbitMQ(machine.name) as rabbitmq, MariaDB() as mariadb:
            url = mariadb.create("gsaas")
            migration.upgrade(url)
            stored = Database.open(url)
            machine.configure(rabbitmq.url, mariadb.url("gsaas"))
            for program in ("engine", "rodvr", "monitor"):
                machine.start(program)
            yield Cloud(machine, stored)
            stored.close()
    finally:
        machine.tear_down()


def kinds(found: dict[str, Any]) -> set[str]:
    return {one["kind"] for one in found["differences"]}


def test_damage_is_found_and_repaired_and_who_is_silent_is_named(cloud: Cloud) -> None:
    machine = cloud.machine
    assert cloud.verify() == (0, {"differences": [], "not_asked": []})
    assert machine.mappings() == 1

    machine.stop("engine")
    cloud.sql(
        "DELETE FROM lease_events WHERE lease_id = :id",
        "DELETE FROM claims WHERE lease_id = :id",
        "DELETE FROM leases WHERE id = :id",
        id=cloud.lease,
    )
    lost = {"gpu-count", "server-of-nobody", "binding-of-nobody", "daemon-of-nobody"}
    status, found = cloud.verify()
    assert (status, kinds(found) - {"admission-of-nobody"}) == (1, lost)
    assert machine.mappings() == 1, "it changes nothing without --repair"

    status, found = cloud.verify("--repair")
    assert (status, {one["failure"] for one in found["differences"]}) == (0, {None})
    assert machine.mappings() == 0
    assert cloud.verify() == (0, {"differences": [], "not_asked": []})

    machine.stop("rodvr")
    status, found = cloud.verify()
    assert status == 2
    assert [each["who"] for each in found["not_asked"]] == [f"the endpoint of {HOST}"]
