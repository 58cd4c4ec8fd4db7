# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.engine.world import World, create_database


@pytest.fixture(scope="session")
def database_file(tmp_path_factory) -> Path:
    database = tmp_path_factory.mktemp("engine") / "database_file.db"
    create_database(database)
    return database


@pytest.fixture
def make_world(database_file, tmp_path) -> Iterator[Callable[[], World]]:
    """Make as many worlds as a test needs."""
    worlds: list[World] = []

    def make() -> World:
        worlds.append(World(shutil.copy(database_file, tmp_path / f"{uuid.uuid4()}.db")))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world) -> World:
    return make_world()
