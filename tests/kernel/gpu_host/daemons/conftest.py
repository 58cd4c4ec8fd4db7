"""Daemons of one test, all of which have to be gone when it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gsaas.gpu_host.daemons.processes import EnvironmentTracker
from tests.kernel.gpu_host.daemons.host import GpuHost


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own, which nobody else may enter."""
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
    """Whatever tells processes apart."""
    marked = EnvironmentTracker(f"test-{os.getpid()}") if request.param == "marks" else None
    host = GpuHost(folder, marked)
    yield host
    host.close()
    assert host.processes() == set()
