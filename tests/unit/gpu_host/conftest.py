# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gsaas.gpu_host.sources import xids
from gsaas.gpu_host.sources.nvml import Nvml
from tests.support.nvml import driver as fake


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests' stand-in for NVIDIA's library, built once."""
    return fake.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fake.FakeDriver:
    """A fake driver in this process, without any GPUs yet."""
    state = tmp_path / "driver"
    monkeypatch.setenv("FAKE_NVML", str(state))
    fake.preload(library)
    return fake.FakeDriver(state)


@pytest.fixture
def source(driver: fake.FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable]:
    """Make a source that reads the fake driver."""
    monkeypatch.setattr(xids, "WAIT_MS", 20)  # how soon its thread ends
    made = []

    def make(visible: str | None = None) -> Nvml:
        made.append(Nvml(range(8308, 9000), fatal_xids=[48, 79], visible_devices=visible))
        return made[-1]

    yield make
    for one in made:
        one.close()
