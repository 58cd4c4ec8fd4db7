from __future__ import annotations

import signal

import pytest

from tests.api.desk import desk as desk
from tests.api.world import World


@pytest.fixture
def world(tmp_path):
    """Two GPU hosts of four GPUs with 8192 MiB each, a compute host without, and the API."""
    made = World.build(tmp_path)
    yield made
    made.database.close()


def pytest_configure() -> None:
    """Heed SIGINT, which is ignored in the background: programs inherit it, and some are to be interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
