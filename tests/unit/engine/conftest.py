from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.engine.world import World, furnish


@pytest.fixture(scope="session")
def furnished(tmp_path_factory) -> Path:
    database = tmp_path_factory.mktemp("engine") / "furnished.db"
    furnish(database)
    return database


@pytest.fixture
def make_world(furnished, tmp_path) -> Iterator[Callable[[], World]]:
    """Make as many worlds as a test needs."""
    worlds: list[World] = []

    def make() -> World:
        worlds.append(World(shutil.copy(furnished, tmp_path / f"{uuid.uuid4()}.db")))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world) -> World:
    return make_world()
