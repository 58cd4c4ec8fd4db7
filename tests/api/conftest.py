from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.api.desk import desk as desk
from tests.api.world import World
from tests.support import launcher


@pytest.fixture
def world(tmp_path):
    """Two GPU hosts of four GPUs with 8192 MiB each, a compute host without, and the API."""
    made = World.build(tmp_path)
    yield made
    made.database.close()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`gsaas` in C and in Python, side by side."""
    return launcher.build(tmp_path_factory.mktemp("launcher"))


def pytest_configure() -> None:
    """Heed SIGINT, which is ignored in the background: programs inherit it, and some are to be interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
