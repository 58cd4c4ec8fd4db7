# SPDX-License-Identifier: Apache-2.0
"""What the cGPUs of leases do with the GPUs of this host: whose processes these are, and means over some time.

1. The processes of a daemon of its own are in its control group, so what they use is what the cGPU uses.
2. Zero is reported only if it is certain: a process on the GPU that belongs to no daemon may be one that this host
   cannot see, of any lease. Whoever is told that his lease is idle may lose it.
3. Of a GPU whose daemon serves several leases only the GPU as a whole is reported. The engine knows whether one lease
   has it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gsaas.objects.daemon import Daemon
from gsaas.objects.gpu_report import GpuSnapshot, Load, Loads

INTERVAL = 55.0
"""At least so many seconds pass between two reports that contain loads, of which the engine makes readings for each
minute: with the default interval, every sixth report has them."""

GroupsOf = Callable[[int], Collection[int]]
"""Returns the numbers of all control groups that contain a process, by its id; none if it is gone or not visible."""


def of_gpus(snapshot: GpuSnapshot) -> list[Load]:
    """Return the loads of all GPUs of *snapshot* that answered, each as a whole."""
    return [
        Load(uuid, reading.utilisation, reading.used_mb)
        for uuid, reading in sorted(snapshot.readings.items())
    ]


def of_cgpus(
    snapshot: GpuSnapshot, daemons: Mapping[int, Daemon], groups_of: GroupsOf
) -> list[Load]:
    """Return the loads of the cGPUs that have a daemon of their own.

    *daemons* are these, by the number of their control group.
    """
    by_gpu: dict[str, dict[int, Daemon]] = {}
    for group, daemon in daemons.items():
        for uuid in daemon.gpus if daemon.lease_id is not None else ():
            if uuid not in snapshot.cores and uuid in snapshot.readings:
                by_gpu.setdefault(uuid, {})[group] = daemon
    loads = []
    for uuid, daemons_there in sorted(by_gpu.items()):
        reading, percents = snapshot.readings[uuid], snapshot.process_utilisation.get(uuid)
        owners = {
            pid: daemons_there.keys() & groups_of(pid)
            for pid in {process.pid for process in reading.processes} | (percents or {}).keys()
        }
        # On a GPU that computes for nobody, the driver could not list the processes.
        all_known = all(owners.values()) and (bool(owners) or not reading.utilisation)
        # The driver may count kernels without telling, or for another process, such as the server of MPS; and it may
        # not tell what the GPU does.
        zero_is_sure = all_known and (bool(percents) or reading.utilisation == 0)
        for group, daemon in daemons_there.items():
            own = [process for process in reading.processes if group in owners[process.pid]]
            if not own and not all_known:
                continue
            percent = sum((percents or {}).get(process.pid, 0.0) for process in own)
            loads.append(
                Load(
                    uuid,
                    min(percent, 100.0) if percent or not own or zero_is_sure else None,
                    _sum(process.used_mb for process in own),
                    daemon.lease_id,
                    daemon.position_of(uuid),
                )
            )
    return loads


def _sum(values: Iterable[int | None]) -> int | None:
    """Return the sum of *values*; None if one of them is not known."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


class LoadMeter:
    """Collects loads, and returns their means from time to time. *interval* is in seconds."""

    def __init__(self, interval: float = INTERVAL) -> None:
        self._interval = interval
        self._since: float | None = None
        self._looks = 0
        self._collected: dict[tuple[str, str | None, int], list[Load]] = {}

    def add(self, loads: Iterable[Load], now: float) -> None:
        """Collect *loads*, read *now* (seconds)."""
        if self._since is None:
            self._since = now - self._interval  # the first ones are reported at once
        self._looks += 1
        for load in loads:
            key = load.gpu_uuid, load.lease_id, load.position
            self._collected.setdefault(key, []).append(load)

    def take(self, now: float) -> Loads | None:
        """Return the means of what was collected since it was taken last, and begin anew; None if it is too early."""
        if self._since is None or now - self._since < self._interval:
            return None
        means = [_mean(each, self._looks) for each in self._collected.values()]
        loads = Loads(now - self._since, means)
        self._since, self._looks, self._collected = now, 0, {}
        return loads


def _mean(loads: Sequence[Load], looks: int) -> Load:
    """Return the mean utilisation, and the most memory, of the loads of one GPU or cGPU.

    The mean is 0 only if that is known of each of the *looks*: where the driver tells nothing of processes, a cGPU that
    computes is not known to, and between two kernels it is known not to.
    """
    percents = [load.utilisation for load in loads if load.utilisation is not None]
    used = [load.used_mb for load in loads if load.used_mb is not None]
    first = loads[0]
    is_known = any(percents) or len(percents) == looks
    return Load(
        first.gpu_uuid,
        sum(percents) / len(percents) if percents and is_known else None,
        max(used) if used else None,
        first.lease_id,
        first.position,
    )
