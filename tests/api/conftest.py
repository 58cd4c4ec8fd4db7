# SPDX-License-Identifier: Apache-2.0
"""What has to be imported for a fixture is imported in it: pytest reads this file before it starts its workers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support import launcher


@pytest.fixture
def world(tmp_path):
    """The API of a cloud with two GPU hosts of four GPUs with 8192 MiB each and a compute host without GPUs."""
    from tests.api.world import World

    built = World.build(tmp_path)
    yield built
    built.database.close()


@pytest.fixture
def desk(world, tmp_path, capsys, monkeypatch):
    """`gsaas` in this process, and the API of `world` on a loopback address."""
    from tests.api.desk import served

    with served(world, tmp_path, capsys, monkeypatch) as desk:
        yield desk


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`gsaas` in C and in Python, side by side."""
    return launcher.build(tmp_path_factory.mktemp("launcher"))


def pytest_configure() -> None:
    """Restore the handler of SIGINT: background processes ignore it, and programs that tests interrupt inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
