# SPDX-License-Identifier: Apache-2.0
"""What CPU devices do: how busy their daemons keep their processors, and how much memory these have. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gsaas.objects.daemon import Daemon, DaemonUsage
from gsaas.objects.gpu_report import Load, Reading


@dataclass(frozen=True)
class CpuReadings:
    """What was read of CPU devices at one moment."""

    devices: Mapping[str, Reading] = field(default_factory=dict)
    """By UUID."""
    loads: tuple[Load, ...] = ()
    """Of the cGPUs that have a daemon of their own."""


class CpuMeter:
    """Computes readings from what daemons have used since the last one, which is over all their life at first."""

    def __init__(self) -> None:
        self._before: Mapping[Daemon, DaemonUsage] = {}
        self._at: float | None = None

    def read(
        self, usages: Mapping[Daemon, DaemonUsage], cores: Mapping[str, int], now: float
    ) -> CpuReadings:
        """Return the readings of the devices in *cores*, UUID -> number of cores, *now* (seconds).

        Percents are unknown at the first look. A daemon that was started since the last one began at 0. What one that
        serves several devices has used counts in equal parts for each of them.
        """
        before, since = self._before, self._at
        self._before, self._at = dict(usages), now
        seconds = None if since is None else max(now - since, 1e-3)
        devices, loads = {}, []
        for uuid, number in cores.items():
            own = {daemon: usage for daemon, usage in usages.items() if uuid in daemon.gpus}
            percents = {
                daemon: None
                if seconds is None
                else 100.0
                * _since(usage, before.get(daemon))
                / (seconds * number * len(daemon.gpus))
                for daemon, usage in own.items()
            }
            total = None if seconds is None else sum(each or 0.0 for each in percents.values())
            devices[uuid] = Reading(
                used_mb=sum(usage.memory_mb // len(daemon.gpus) for daemon, usage in own.items()),
                utilisation=None if total is None else round(min(total, 100.0), 1),
            )
            loads += [
                Load(
                    uuid,
                    _capped(percents[daemon]),
                    usage.memory_mb // len(daemon.gpus),
                    daemon.lease_id,
                    daemon.position_of(uuid),
                )
                for daemon, usage in own.items()
                if daemon.lease_id is not None
            ]
        return CpuReadings(devices, tuple(loads))


def _since(usage: DaemonUsage, before: DaemonUsage | None) -> float:
    """Return the seconds of processors that were used since *before*; one that was started anew has used less."""
    if before is None or before.cpu_seconds > usage.cpu_seconds:
        return usage.cpu_seconds
    return usage.cpu_seconds - before.cpu_seconds


def _capped(percent: float | None) -> float | None:
    return None if percent is None else min(percent, 100.0)
