# SPDX-License-Identifier: Apache-2.0
"""A GPU host with two daemons, two compute hosts and a stranger, on one network."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from gsaas.gpu_host.fence.fence import Fence
from tests.kernel.gpu_host.fence.network import GPU_HOST, RANGES, Network


@pytest.fixture(scope="session")
def network() -> Iterator[Network]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    network = Network()
    try:
        network.up()
        yield network
    finally:
        network.down()


@pytest.fixture
def make_fence(network: Network) -> Iterator:
    made: list[Fence] = []

    def make(**options: object) -> Fence:
        fence = Fence(GPU_HOST, netns=network.netns("gpu"), **options)
        made.append(fence)
        fence.start(RANGES)
        return fence

    yield make
    for fence in made:
        fence.stop()
    Fence(GPU_HOST, netns=network.netns("gpu")).teardown()
    assert network.ruleset() == []


@pytest.fixture
def fence(make_fence) -> Fence:
    return make_fence()
