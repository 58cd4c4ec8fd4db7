# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.kernel.standalone.cloud import Cloud


@pytest.fixture(scope="module")
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
