# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import gsaas.conf
from gsaas import rpc
from gsaas.db.database import Database
from tests.support import sqlite


@pytest.fixture
def bus() -> Iterator[rpc.Bus]:
    """A message bus inside this process, as gsaas-standalone uses it."""
    bus = rpc.connect(gsaas.conf.load(files=[]), rpc.IN_PROCESS)
    yield bus
    bus.cleanup()


@pytest.fixture
def running() -> Iterator[Callable[[Any], Any]]:
    """Start something, and stop it when the test ends."""
    with ExitStack() as stack:

        def run(service: Any) -> Any:
            service.start()
            stack.callback(service.stop)
            return service

        yield run


@pytest.fixture
def database(tmp_path) -> Iterator[Database]:
    database = sqlite.in_file(tmp_path / "gsaas.db", sqlite.migrated())
    yield database
    database.close()
