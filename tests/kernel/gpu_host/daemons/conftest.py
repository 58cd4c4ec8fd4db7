# SPDX-License-Identifier: Apache-2.0
"""Hosts for one test each; when it ends, all daemons have to be gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gsaas.gpu_host.daemons.processes import EnvironmentTracker
from tests.kernel.gpu_host.daemons.host import GpuHost


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder that other users may enter, unlike pytest's own."""
    import shutil
    import tempfile

    path = Path(tempfile.mkdtemp(prefix="gsaas-daemons-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def host(folder: Path) -> Iterator[GpuHost]:
    if os.geteuid() != 0:
        pytest.skip("control groups and mount namespaces need root")
    host = GpuHost(folder)
    yield host
    host.close()
    assert host.processes() == set()


@pytest.fixture(params=["control groups", "marks"])
def any_host(request: pytest.FixtureRequest, folder: Path) -> Iterator[GpuHost]:
    """A host with each kind of process tracker."""
    marked = EnvironmentTracker(f"test-{os.getpid()}") if request.param == "marks" else None
    host = GpuHost(folder, marked)
    yield host
    host.close()
    assert host.processes() == set()
