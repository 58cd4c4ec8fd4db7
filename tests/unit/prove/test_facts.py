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
            "nvmlDeviceGetMemoryInfo": lambda *_: SimpleNamespace(total=1 << 30, used=0),
            "nvmlDeviceGetPersistenceMode": unknown,
            "nvmlDeviceGetTotalEccErrors": unknown,
            "nvmlDeviceGetComputeMode": unknown,
            "nvmlDeviceGetMigMode": mig or unknown,
        }.items():
            monkeypatch.setattr(pynvml, name, function)

    return install


def test_one_sick_gpu_is_told_by_its_index_and_the_others_are_read(nvml):
    nvml({1})
    version, gpus, unreadable = facts.nvml(None)
    assert (version, [gpu.uuid for gpu in gpus]) == ("570.86.10", ["GPU-0", "GPU-2"])
    assert unreadable == {"GPU of index 1": "GPU is lost"}


def test_a_driver_that_does_not_count_its_gpus_is_told_with_its_error(nvml, monkeypatch):
    nvml(set())

    def fails() -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", fails)
    assert facts.nvml(None) == ("570.86.10", [], {"GPUs": "Unknown Error"})


def test_an_odd_version_and_an_absurd_number_of_gpus_are_survived(nvml, monkeypatch):
    nvml(set())

    def handle(index: int) -> int:
        assert index < 2000, "the others are not there"
        if index > 2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return index

    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: b"570\xf8".decode())
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2**32 - 1)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", handle)
    version, gpus, _ = facts.nvml(None)
    assert (version, len(gpus)) == ("570\N{REPLACEMENT CHARACTER}", 3)


def test_without_a_driver_there_is_nothing(monkeypatch):
    def fails() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fails)
    assert facts.nvml(None) == (None, [], {})


def test_a_gpu_in_mig_mode_is_told_from_one_whose_mode_only_changes_at_its_next_reset(nvml):
    nvml(set(), mig=lambda index: [1, 1] if index == 2 else [0, 1])
    _, gpus, _ = facts.nvml(None)
    assert [gpu.mig for gpu in gpus] == [False, False, True]


def test_a_gpu_of_which_one_answer_is_odd_is_told_and_the_others_are_read(nvml, monkeypatch):
    nvml(set())

    def memory(index: int, *_version: int) -> SimpleNamespace:
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(total=1 << 30, used=0)

    def name(index: int) -> str:
        return b"\xf8 GeForce".decode() if index == 1 else "H100"

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", memory)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", name)
    _, gpus, unreadable = facts.nvml(None)
    assert [(gpu.uuid, gpu.model) for gpu in gpus] == [
        ("GPU-1", "\N{REPLACEMENT CHARACTER} GeForce"),
        ("GPU-2", "H100"),
    ]
    (said,) = unreadable.values()
    assert "set unified_memory_mb in the section [monitor]" in said
    assert facts.nvml(65536)[1][0].memory_mb == 65536
