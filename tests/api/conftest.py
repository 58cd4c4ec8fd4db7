from __future__ import annotations

import pytest

from tests.api.world import World


@pytest.fixture
def world(tmp_path):
    """Two GPU hosts of four GPUs with 8192 MiB each, a compute host without, and the API."""
    made = World.build(tmp_path)
    yield made
    made.database.close()
