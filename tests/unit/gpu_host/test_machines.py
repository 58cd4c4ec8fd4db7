# SPDX-License-Identifier: Apache-2.0
"""What a process sees of a machine's GPUs is what the machine has: on the fake driver, and on NVIDIA's where it is."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gsaas.objects.gpu_report import GpuInfo, GpuReport, Reading
from tests.support.nvml import driver as fake

NVIDIA_SMI = ["nvidia-smi", "--format=csv,noheader,nounits"]
FACTS = ("index", "uuid", "name", "memory.total", "compute_cap")


class Fake:
    """A machine with eight GPUs that are not there."""

    def __init__(self, library: Path, folder: Path) -> None:
        driver = fake.FakeDriver(folder / "driver")
        driver.have(8)
        self.environment = {
            "LD_LIBRARY_PATH": str(library.parent),
            "FAKE_NVML": str(driver.path),
        }
        self.facts = [
            (str(index), gpu["uuid"], gpu["name"], str(gpu["memory"]), gpu["cc"])
            for index, gpu in driver.gpus.items()
        ]


class Real:
    """This machine, as nvidia-smi sees it."""

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}
        listed = subprocess.run(
            [*NVIDIA_SMI, f"--query-gpu={','.join(FACTS)}"],
            check=True,
            capture_output=True,
            text=True,
        )
        rows = csv.reader(io.StringIO(listed.stdout), skipinitialspace=True)
        self.facts = [tuple(row) for row in rows]


@pytest.fixture(params=["fake", "real"])
def machine(request: pytest.FixtureRequest, library: Path, tmp_path: Path) -> Fake | Real:
    if request.param == "fake":
        return Fake(library, tmp_path)
    if not Path("/dev/nvidiactl").exists():
        pytest.skip("there is no NVIDIA GPU here")
    return Real()


@pytest.fixture
def take_report(machine: Fake | Real) -> Callable[..., GpuReport]:
    """Have a process of its own look at the machine."""

    def take(**environment: str) -> GpuReport:
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.nvml.look"],
            env={**os.environ, **machine.environment, **environment},
            check=True,
            capture_output=True,
            text=True,
        )
        return GpuReport.from_dict(json.loads(done.stdout))

    return take


def told(gpu: GpuInfo) -> tuple[str, ...]:
    return (
        str(gpu.device_index),
        gpu.uuid,
        gpu.model,
        str(gpu.memory_mb),
        gpu.compute_capability,
    )


def makes_sense(gpu: GpuInfo, reading: Reading) -> bool:
    return (
        0 <= reading.used_mb <= gpu.memory_mb
        and 0 <= (reading.utilisation or 0) <= 100
        and -50 < (reading.temperature_c or 0) < 150
        and 0 <= (reading.power_w or 0) < 5000
    )


@pytest.mark.slow
def test_every_gpu_is_seen_as_it_is_and_read(take_report, machine):
    snapshot = take_report().snapshot
    assert (snapshot.unavailable, snapshot.problems) == (None, [])
    assert [told(gpu) for gpu in snapshot.gpus] == machine.facts
    assert all(makes_sense(gpu, snapshot.readings[gpu.uuid]) for gpu in snapshot.gpus)


def test_one_may_be_picked_by_its_uuid(take_report, machine):
    (_, uuid, *_) = machine.facts[-1]
    assert [gpu.uuid for gpu in take_report(CUDA_VISIBLE_DEVICES=uuid).snapshot.gpus] == [uuid]
