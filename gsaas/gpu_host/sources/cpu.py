# SPDX-License-Identifier: Apache-2.0
"""Devices that are parts of this host's processors and memory, as `[monitor]` divides them.

Each device has some cores and some memory. A daemon of a device is kept to these by its unit; what the devices do is
read from the control groups of their daemons (`gsaas.gpu_host.cpu_meter`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from oslo_config import cfg

from gsaas.gpu_host.sources.base import SourceUnavailable
from gsaas.objects.device_kinds import CPU_PREFIX
from gsaas.objects.gpu_report import GpuInfo, GpuSnapshot

NAMESPACE = uuid.UUID("9f2f7f0e-0f1f-5c3c-8f9e-3b7f3c1d2a64")


def load(conf: cfg.ConfigOpts, host_name: str, ports: Sequence[int]) -> CpuDevices:
    """Return a source of the devices that `[monitor]` asks for; raises `SourceUnavailable` if the host has less."""
    options = conf.monitor
    cores = cores_of(conf, host_name)
    if options.cpu_device_memory_mb is None:
        raise SourceUnavailable(
            "how much memory each device has is not configured: set cpu_device_memory_mb in the section [monitor]"
        )
    needed, total = options.cpu_devices * options.cpu_device_memory_mb, _memory_mb()
    if needed > total:
        raise SourceUnavailable(
            f"{options.cpu_devices} devices of {options.cpu_device_memory_mb} MiB need more than the {total} MiB of "
            "this host; see [monitor]cpu_device_memory_mb"
        )
    infos = [
        GpuInfo(name, index, _model(len(numbers)), options.cpu_device_memory_mb, ports[index])
        for index, (name, numbers) in enumerate(cores.items())
    ]
    return CpuDevices(infos, [len(numbers) for numbers in cores.values()])


def cores_of(conf: cfg.ConfigOpts, host_name: str) -> dict[str, tuple[int, ...]]:
    """Return the UUID of each device of a host, and the numbers of its cores; raises `SourceUnavailable`."""
    options = conf.monitor
    there = sorted(os.sched_getaffinity(0))
    each = options.cpu_device_cores or len(there) // options.cpu_devices
    if not each or each * options.cpu_devices > len(there):
        raise SourceUnavailable(
            f"{options.cpu_devices} devices of {each or 1} cores need more than the {len(there)} cores of this host; "
            "see [monitor]cpu_devices and cpu_device_cores"
        )
    return {
        f"{CPU_PREFIX}{uuid.uuid5(NAMESPACE, f'{host_name}/{index}')}": tuple(
            there[index * each : (index + 1) * each]
        )
        for index in range(options.cpu_devices)
    }


class CpuDevices:
    """A source of *devices*, which have so many *cores*."""

    def __init__(self, devices: Sequence[GpuInfo], cores: Sequence[int]) -> None:
        self._devices = devices
        self._cores: Mapping[str, int] = {
            device.uuid: number for device, number in zip(devices, cores, strict=True)
        }

    def snapshot(self) -> GpuSnapshot:
        return GpuSnapshot(self._devices, cores=self._cores)

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """There are no events."""

    def close(self) -> None:
        """There is nothing to release."""


def _model(cores: int) -> str:
    return "CPU, 1 core" if cores == 1 else f"CPU, {cores} cores"


def _memory_mb() -> int:
    """Return the MiB of memory of this host (proc_meminfo(5))."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    return 0
