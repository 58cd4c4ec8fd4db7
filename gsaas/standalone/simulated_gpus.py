# SPDX-License-Identifier: Apache-2.0
"""Simulated GPUs with invented readings, for demonstrations, tests and benchmarks.

The utilisation of each GPU is a slow sine wave whose phase follows from its UUID, so it depends on UUID and time alone.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Sequence

from oslo_config import cfg

from gsaas.gpu_host.sources import declared
from gsaas.objects.gpu_report import GpuInfo, GpuSnapshot, Reading

PERIOD = 600.0
"""Seconds of one period of the wave."""


def load(conf: cfg.ConfigOpts, host_name: str, ports: Sequence[int]) -> SimulatedGpus:
    """Return a source of the GPUs that the inventory declares for *host_name*; raises `SourceUnavailable`."""
    return SimulatedGpus(declared.host(conf, host_name).gpu_infos(ports))


class SimulatedGpus:
    """A source of *gpus* with invented readings; *clock* returns seconds."""

    def __init__(
        self, gpus: Sequence[GpuInfo], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gpus = gpus
        self._clock = clock

    def snapshot(self) -> GpuSnapshot:
        now = self._clock()
        return GpuSnapshot(self._gpus, {gpu.uuid: _reading(gpu, now) for gpu in self._gpus})

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Do nothing: there are no events."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _reading(gpu: GpuInfo, now: float) -> Reading:
    phase = zlib.crc32(gpu.uuid.encode()) / 2**32
    busy = (1 + math.sin(2 * math.pi * (now / PERIOD + phase))) / 2
    return Reading(
        used_mb=int(gpu.memory_mb * busy / 2),
        utilisation=round(100 * busy, 1),
        temperature_c=round(30 + 50 * busy, 1),
        power_w=round(30 + 200 * busy, 1),
    )
