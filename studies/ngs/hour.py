# SPDX-License-Identifier: Apache-2.0
"""One hour of jobs from twelve VMs on four servers with a GPU each (section 5.5).

1. Each VM runs one job after the other; the next one comes up to 10 s after the last has ended. A job takes 10, 50 or
   100 s alone, uses 10, 40 or 80 % of a GPU, and 2, 4 or 8 GiB of its memory.
2. With MIG, each VM has an instance of its own, with 28.6 % of its server's GPU: a job that uses more slows down.
3. With NGS, each job gets a share of any GPU, which the service's own pool and policies choose. If the jobs on a GPU
   would use more than all of it, all of them slow down by the same factor.

Which VMs run which jobs is in a figure that the text describes in part: the jobs of server 0 use 80 %, those of
server 3 use 10 %; for the two between them `UTILISATION` is an assumption.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool import Pool
from gsaas.objects.gpu import SHARED, Gpu
from gsaas.objects.placement import Placement
from gsaas.objects.request import Request
from gsaas.sim.claims import PoolClaims
from gsaas.sim.clock import Clock, Event

HOUR = 3600.0
GPU_MEMORY_MB = 40_960
SECONDS = (10.0, 50.0, 100.0)
MEMORY_MB = (2048, 4096, 8192)
LONGEST_PAUSE = 10.0
UTILISATION = ((0.8, 0.8, 0.8), (0.4, 0.4, 0.4), (0.4, 0.1, 0.1), (0.1, 0.1, 0.1))
"""Server -> VM -> the part of a GPU that its jobs use."""
MIG_PART = 0.286
"""Of a GPU that an instance 2g.10gb is."""
WINDOW = 10.0
"""Seconds over which BF looks at utilisation."""


@dataclass(slots=True, eq=False)
class _Job:
    vm: int
    use: float
    remaining: float
    """Seconds that the rest would take alone."""
    updated_at: float
    rate: float = 0.0
    """Seconds alone that pass in one second."""
    end: Event | None = None
    placement: Placement | None = None


@dataclass(slots=True)
class _Device:
    """A GPU or an instance: *size* is its part of a GPU."""

    size: float = 1.0
    jobs: list[_Job] = field(default_factory=list)
    busy: deque[tuple[float, float]] = field(default_factory=lambda: deque([(0.0, 0.0)]))
    """(since when, what part of it is in use), for at least `WINDOW` seconds back."""

    @property
    def wanted(self) -> float:
        """The part of a GPU that its jobs would use if they could."""
        return sum(job.use for job in self.jobs)

    def utilisation(self, now: float) -> float:
        """Return the mean percentage that was in use in the last `WINDOW` seconds."""
        while len(self.busy) > 1 and self.busy[1][0] <= now - WINDOW:
            self.busy.popleft()
        total, until = 0.0, now
        for since, part in reversed(self.busy):
            begin = max(since, now - WINDOW, 0.0)
            total += part * (until - begin)
            until = begin
        return 100 * total / min(WINDOW, now) if now else 0.0


class HourSimulation:
    """One run. *policy* chooses GPUs as NGS does; None: MIG."""

    def __init__(self, seed: int, policy: Policy | None) -> None:
        self._policy = policy
        # One generator for each VM: its jobs are the same whatever becomes of those of others.
        self._rngs = [random.Random(f"{seed} {vm}") for vm in range(len(_USES))]
        self._clock = Clock()
        self.done = 0
        self._waiting: deque[tuple[_Job, int]] = deque()
        self._pool = Pool(
            [
                Gpu(f"gpu{n}", f"server{n}", 0, GPU_MEMORY_MB, utilisation=0.0)
                for n in range(len(UTILISATION))
            ]
        )
        self._claims = PoolClaims(self._pool)
        size = MIG_PART if policy is None else 1.0
        count = len(_USES) if policy is None else len(UTILISATION)
        self._devices = [_Device(size) for _ in range(count)]
        for vm in range(len(_USES)):
            self._pause(vm)

    def run(self) -> int:
        """Return the number of jobs that ended within an hour."""
        self._clock.schedule(HOUR, self._stop, priority=-1)
        self._clock.run()
        return self.done

    def _stop(self) -> None:
        """End the hour: jobs that still run do not count, and none begins."""
        self._rngs = []
        for device in self._devices:
            for job in device.jobs:
                if job.end is not None:
                    job.end.cancel()

    def _pause(self, vm: int) -> None:
        at = self._clock.now + self._rngs[vm].uniform(0, LONGEST_PAUSE)
        self._clock.schedule(at, self._arrive, vm)

    def _arrive(self, vm: int) -> None:
        if not self._rngs:
            return
        rng = self._rngs[vm]
        job = _Job(vm, _USES[vm], rng.choice(SECONDS), self._clock.now)
        memory_mb = rng.choice(MEMORY_MB)
        if self._policy is None:
            self._start(job, self._devices[vm])
        else:
            self._waiting.append((job, memory_mb))
            self._start_waiting(self._policy)

    def _start_waiting(self, policy: Policy) -> None:
        while self._waiting:
            job, memory_mb = self._waiting[0]
            if policy.looks_at_utilisation:
                for gpu, device in zip(list(self._pool), self._devices, strict=True):
                    read = device.utilisation(self._clock.now)
                    self._pool.put(replace(gpu, utilisation=read))
            job.placement = self._pool.place(Request(1, SHARED, memory_mb), policy)
            if job.placement is None:
                return
            self._waiting.popleft()
            self._claims.claim(job.placement, exclusive=False)
            number = int(job.placement.shares[0].gpu_uuid.removeprefix("gpu"))
            job.updated_at = self._clock.now
            self._start(job, self._devices[number])

    def _start(self, job: _Job, device: _Device) -> None:
        device.jobs.append(job)
        self._share(device)

    def _finish(self, job: _Job, device: _Device) -> None:
        self.done += 1
        device.jobs.remove(job)
        self._share(device)
        if job.placement is not None and self._policy is not None:
            self._claims.release(job.placement)
            self._start_waiting(self._policy)
        self._pause(job.vm)

    def _share(self, device: _Device) -> None:
        """Give each job of *device* the rate that it has from now on."""
        now, wanted = self._clock.now, device.wanted
        device.busy.append((now, min(wanted / device.size, 1.0)))
        for job in device.jobs:
            job.remaining = max(job.remaining - (now - job.updated_at) * job.rate, 0.0)
            job.updated_at = now
            job.rate = min(device.size / wanted, 1.0)
            if job.end is not None:
                job.end.cancel()
            job.end = self._clock.schedule(
                now + job.remaining / job.rate, self._finish, job, device
            )


_USES = [use for vms in UTILISATION for use in vms]


def jobs_done(policies: Sequence[Policy | None], seed: int) -> list[int]:
    """Return the number of jobs that end within an hour with each of *policies*; None stands for MIG."""
    return [HourSimulation(seed, policy).run() for policy in policies]
