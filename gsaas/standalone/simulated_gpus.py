# SPDX-License-Identifier: Apache-2.0
"""Simulated GPUs with invented readings, for demonstrations, tests and benchmarks.

The utilisation of a GPU that leases use is a slow sine wave, whose phase follows from the UUID. All others read idle.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Collection, Sequence

from oslo_config import cfg

from gsaas.gpu_host.sources import declared
from gsaas.objects.gpu_report import GpuInfo, GpuSnapshot, Reading

PERIOD = 600.0
"""Seconds of one period of the wave."""


def load(conf: cfg.ConfigOpts, host_name: str, ports: Sequence[int]) -> SimulatedGpus:
    """Return a source of the GPUs that the inventory declares for *host_name*; raises `SourceUnavailable`.

    They read idle: nothing tells a monitor which of them leases use.
    """
    return SimulatedGpus(declared.host(conf, host_name).gpu_infos(ports))


class SimulatedGpus:
    """A source of *gpus* with invented readings.

    *in_use* returns the UUIDs of those that leases use, *clock* seconds.
    """

    def __init__(
        self,
        gpus: Sequence[GpuInfo],
        in_use: Callable[[], Collection[str]] = frozenset,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gpus = gpus
        self._in_use = in_use
        self._clock = clock

    def snapshot(self) -> GpuSnapshot:
        now, used = self._clock(), self._in_use()
        readings = {
            gpu.uuid: _reading(gpu, _busy(gpu, now) if gpu.uuid in used else 0.0)
            for gpu in self._gpus
        }
        return GpuSnapshot(self._gpus, readings)

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Do nothing: there are no events."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _busy(gpu: GpuInfo, now: float) -> float:
    """Return how busy a GPU is, from 0 to 1."""
    phase = zlib.crc32(gpu.uuid.encode()) / 2**32
    return (1 + math.sin(2 * math.pi * (now / PERIOD + phase))) / 2


def _reading(gpu: GpuInfo, busy: float) -> Reading:
    return Reading(
        used_mb=int(gpu.memory_mb * busy / 2),
        utilisation=round(100 * busy, 1),
        temperature_c=round(30 + 50 * busy, 1),
        power_w=round(30 + 200 * busy, 1),
    )
