# SPDX-License-Identifier: Apache-2.0
"""A cloud with one lease of every kind that is as it should be, and whoever damages it."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gsaas.db import endpoints
from gsaas.engine.agents import Agents
from gsaas.objects.lifecycle import Status
from gsaas.objects.ports import PortRange
from gsaas.verify import gather, rules
from gsaas.verify.facts import Facts
from gsaas.verify.repair import Repairs
from gsaas.verify.rules import Difference
from tests.unit.engine.world import GPU_HOST, World, create_database

OTHER_HOST = "compute2"
PORTS = PortRange(20000, 20099)


class Cloud:
    """The `World` of the engine, whose parts can be damaged one by one, and `gsaas-manage verify` on it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.world = World(file, PORTS)
        self.world.fuse.on_effect = lambda: None  # it is damaged on purpose
        with self.world.database.write() as session:
            addresses = {"bindings": {}, "gpu_address": "192.168.50.22"}
            endpoints.register(session, OTHER_HOST, addresses)
        self.world.gpu_hosts.reconcile(GPU_HOST)
        self.vm = self.active(self.world.launch())
        self.alloc = self.active(self.world.alloc())

    @property
    def agents(self) -> Agents:
        return Agents(self.world.endpoint, self.world.monitor)

    def active(self, lease_id: str) -> str:
        self.world.reconcile(lease_id)
        assert self.status(lease_id) == Status.ACTIVE, self.world.events(lease_id)
        return lease_id

    def end(self, lease_id: str) -> None:
        self.world.release(lease_id)
        self.world.reconcile(lease_id)
        assert self.status(lease_id) == Status.RELEASED

    def status(self, lease_id: str) -> str:
        return self.world.lease(lease_id).status

    def sql(self, *statements: str, **values: Any) -> None:
        """Change the tables by hand, as if no foreign key was checked."""
        with closing(sqlite3.connect(self.file)) as connection, connection:
            for statement in statements:
                connection.execute(statement, values)

    def back_up(self) -> Path:
        copy = self.file.with_name(f"{uuid.uuid4()}.backup")
        with closing(sqlite3.connect(self.file)) as now, closing(sqlite3.connect(copy)) as then:
            now.backup(then)
        return copy

    def restore(self, backup: Path) -> None:
        with closing(sqlite3.connect(backup)) as then, closing(sqlite3.connect(self.file)) as now:
            then.backup(now)

    # -- gsaas-manage verify -------------------------------------------------------------------------

    def facts(self) -> Facts:
        return gather.gather(self.world.database, self.world.cloud, self.agents)

    def differences(self, settle: float = 0) -> list[Difference]:
        return rules.differences(self.facts(), settle)

    def kinds(self) -> set[str]:
        return {one.kind for one in self.differences()}

    def repairs(self) -> Repairs:
        return Repairs(self.world.database, self.world.cloud, self.agents, self.world.reconcile)

    def repair(self) -> dict[Difference, str | None]:
        """Repair everything; return why something could not be."""
        return dict(self.repairs().carry_out(self.differences()))


@pytest.fixture(scope="session")
def database_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("verify") / "database.db"
    create_database(file)
    return file


@pytest.fixture
def cloud(database_file: Path, tmp_path: Path) -> Iterator[Cloud]:
    file = tmp_path / "gsaas.db"
    file.write_bytes(database_file.read_bytes())
    cloud = Cloud(file)
    yield cloud
    cloud.world.close()
