"""GPUs that are not there, with readings that are made up: for demonstrations, tests and benchmarks.

Each GPU gets busier and idler in a slow wave of its own, which follows from its UUID and the time alone.
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
"""Seconds of one wave."""


def load(conf: cfg.ConfigOpts, host_name: str, first_port: int) -> SimulatedGpus:
    """Return a source of the GPUs that are declared for *host_name*; raises `SourceUnavailable`."""
    return SimulatedGpus(declared.host(conf, host_name).gpu_infos(first_port))


class SimulatedGpus:
    """Makes up readings of *gpus*; *clock* tells seconds."""

    def __init__(
        self, gpus: Sequence[GpuInfo], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gpus = gpus
        self._clock = clock

    def snapshot(self) -> GpuSnapshot:
        now = self._clock()
        return GpuSnapshot(self._gpus, {gpu.uuid: _reading(gpu, now) for gpu in self._gpus})

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """There never are any."""

    def close(self) -> None:
        """There is nothing to let go of."""


def _reading(gpu: GpuInfo, now: float) -> Reading:
    phase = zlib.crc32(gpu.uuid.encode()) / 2**32
    busy = (1 + math.sin(2 * math.pi * (now / PERIOD + phase))) / 2
    return Reading(
        used_mb=int(gpu.memory_mb * busy / 2),
        utilisation=round(100 * busy, 1),
        temperature_c=round(30 + 50 * busy, 1),
        power_w=round(30 + 200 * busy, 1),
    )
