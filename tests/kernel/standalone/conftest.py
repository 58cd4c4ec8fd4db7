# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kernel.standalone.cloud import Cloud


@pytest.fixture(scope="package", autouse=True)
def ended_with_their_tests() -> None:
    """End the daemons of tests that were killed: daemons outlive gsaas-standalone, which ends with its tests."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            title = (process / "cmdline").read_bytes().decode(errors="replace")
            found = re.match(r"gsaas-daemon t(\d+)x", title)
            if found and not Path("/proc", found[1]).exists():
                os.kill(int(process.name), signal.SIGKILL)


@pytest.fixture(scope="package")
def shared_cloud(tmp_path_factory) -> Iterator[Cloud]:
    """A running cloud for tests that restore what they change."""
    cloud = Cloud(tmp_path_factory.mktemp("standalone"))
    try:
        cloud.start()
        yield cloud
    finally:
        cloud.remove()


@pytest.fixture
def cloud(shared_cloud) -> Iterator[Cloud]:
    """The running cloud; a test may kill it. After each test all leases are released and must leave nothing."""
    if shared_cloud.process is None:
        shared_cloud.start()
    yield shared_cloud
    _, body = shared_cloud.call("GET", "/v1/leases?all_projects=true")
    for lease in body["leases"]:
        shared_cloud.terminate(lease)
    shared_cloud.check_nothing_is_leaked([])


@pytest.fixture
def make_cloud(tmp_path_factory) -> Iterator[Callable[..., Cloud]]:
    """A function that makes clouds for one test, not started yet."""
    clouds: list[Cloud] = []

    def make(home: str | None = None) -> Cloud:
        clouds.append(Cloud(tmp_path_factory.mktemp("standalone"), home))
        return clouds[-1]

    try:
        yield make
    finally:
        for cloud in clouds:
            cloud.remove()
