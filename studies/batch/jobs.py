"""Jobs, and where they come from: the random variables of the papers."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from studies.batch.models import GB, Work

Draw = tuple[float, float]
"""Mean and variance of a Gaussian."""


@dataclass(frozen=True, slots=True)
class Job:
    """*nodes* processes, each on a node of its own and with the same needs. Times in seconds, memory in bytes."""

    id: int
    arrival: float
    nodes: int
    gpus: int
    """Of each process."""
    cpus: int
    memory: float
    work: Work


@dataclass(frozen=True)
class JobModel:
    """A job set as the paper of 2016 makes them (Table 4). Change a field to see its effect."""

    count: int = 10_000
    nodes: Draw = (30, 30)
    interarrival: float = 1.0
    """Mean of the exponential distribution, in seconds."""
    other: Draw = (1e3, 1e2)
    calls: Draw = (1e6, 1e5)
    gpu_bytes: Draw = (1e9, 1e8)
    gpus: Mapping[int, float] = field(default_factory=lambda: {1: 0.1, 2: 0.8, 3: 0.1})
    """GPUs of each process -> probability."""
    connections: Draw = (1e4, 1e3)
    net_bytes: Draw = (4 * GB, GB)
    memory: Draw = (8 * GB, GB)
    most_nodes: int = 100

    def with_(self, **changes: object) -> JobModel:
        return replace(self, **changes)

    def jobs(self, seed: int) -> list[Job]:
        """Draw the job set, in the order of arrival."""
        return list(self._draw(random.Random(seed)))

    def _draw(self, rng: random.Random) -> Iterator[Job]:
        now = 0.0
        kinds, weights = list(self.gpus), list(self.gpus.values())
        for number in range(self.count):
            now += rng.expovariate(1 / self.interarrival)
            (gpus,) = rng.choices(kinds, weights)
            yield Job(
                number,
                now,
                nodes=min(max(round(_gauss(rng, self.nodes)), 1), self.most_nodes),
                gpus=gpus,
                cpus=gpus,
                memory=_gauss(rng, self.memory),
                work=Work(
                    _gauss(rng, self.other),
                    calls=_gauss(rng, self.calls),
                    gpu_bytes=_gauss(rng, self.gpu_bytes),
                    connections=_gauss(rng, self.connections),
                    net_bytes=_gauss(rng, self.net_bytes),
                ),
            )


def magnitude(exponent: float) -> Draw:
    """Gauss(10^x, 10^(x-1)): how the papers vary a quantity over orders of magnitude."""
    return 10**exponent, 10 ** (exponent - 1)


def _gauss(rng: random.Random, draw: Draw) -> float:
    mean, variance = draw
    return max(rng.gauss(mean, math.sqrt(variance)), 0.0)
