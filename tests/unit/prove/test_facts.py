# SPDX-License-Identifier: Apache-2.0
"""What NVML tells of a host of which one GPU, or everything, is sick."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from gsaas.prove import facts

pynvml = pytest.importorskip("pynvml")


@pytest.fixture
def nvml(monkeypatch):
    """Have NVML know three GPUs, of which those in *sick* do not answer; *mig* returns their MIG mode."""

    def install(sick: set[int], mig: Callable[[int], list[int]] | None = None) -> None:
        def handle(index: int) -> int:
            if index in sick:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
            return index

        def unknown(*_arguments):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

        for name, function in {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "570.86.10",
            "nvmlDeviceGetCount": lambda: 3,
            "nvmlDeviceGetHandleByIndex": handle,
            "nvmlDeviceGetUUID": lambda index: f"GPU-{index}",
            "nvmlDeviceGetName": lambda _index: "H100",
            "nvmlDeviceGetMemoryInfo": lambda _index: SimpleNamespace(total=1 << 30),
            "nvmlDeviceGetPersistenceMode": unknown,
            "nvmlDeviceGetTotalEccErrors": unknown,
            "nvmlDeviceGetComputeMode": unknown,
            "nvmlDeviceGetMigMode": mig or unknown,
        }.items():
            monkeypatch.setattr(pynvml, name, function)

    return install


def test_one_sick_gpu_is_told_by_its_index_and_the_others_are_read(nvml):
    nvml({1})
    version, gpus, unreadable = facts.nvml()
    assert (version, [gpu.uuid for gpu in gpus]) == ("570.86.10", ["GPU-0", "GPU-2"])
    assert unreadable == {"GPU of index 1": "GPU is lost"}


def test_a_driver_that_does_not_count_its_gpus_is_told_with_its_error(nvml, monkeypatch):
    nvml(set())

    def fails() -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", fails)
    assert facts.nvml() == ("570.86.10", [], {"GPUs": "Unknown Error"})


def test_without_a_driver_there_is_nothing(monkeypatch):
    def fails() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fails)
    assert facts.nvml() == (None, [], {})


def test_a_gpu_in_mig_mode_is_told_from_one_whose_mode_only_changes_at_its_next_reset(nvml):
    nvml(set(), mig=lambda index: [1, 1] if index == 2 else [0, 1])
    _, gpus, _ = facts.nvml()
    assert [gpu.mig for gpu in gpus] == [False, False, True]
