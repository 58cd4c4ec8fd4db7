# SPDX-License-Identifier: Apache-2.0
"""A machine with systemd for all tests, and a host in it for each; when a test ends, all daemons have to be gone."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kernel.gpu_host.daemons.host import GpuHost
from tests.openstack.bed.errors import BedError
from tests.support.gpu_machine import GpuMachine


@pytest.fixture(scope="package")
def machine() -> Iterator[GpuMachine]:
    if os.geteuid() != 0:
        pytest.skip("a machine needs root")
    try:
        with GpuMachine() as machine:
            yield machine
    except BedError as error:
        pytest.skip(str(error))


@pytest.fixture
def host(machine: GpuMachine) -> Iterator[GpuHost]:
    with machine.network():
        host = GpuHost(machine)
        yield host
        host.close()
        assert machine.units() == []
        assert host.processes() == set()
