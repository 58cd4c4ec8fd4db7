# SPDX-License-Identifier: Apache-2.0
"""Batch jobs, and the random variables of the papers from which synthetic jobs are drawn."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from studies.batch.models import GB, Work

Gaussian = tuple[float, float]
"""Mean and variance of a Gaussian distribution."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A job of *nodes* processes, each on a node of its own, with equal needs. Seconds and bytes."""

    id: int
    arrival: float
    nodes: int
    gpus: int
    """Of each process, as are *cpus*, *memory* and *work*."""
    cpus: int
    memory: float
    work: Work


@dataclass(frozen=True)
class BatchJobModel:
    """The random variables of a job set; the defaults are those of 2016 (Table 4)."""

    count: int = 10_000
    nodes: Gaussian = (30, 30)
    interarrival: float = 1.0
    """Mean of the exponential distribution, in seconds."""
    other_seconds: Gaussian = (1e3, 1e2)
    calls: Gaussian = (1e6, 1e5)
    gpu_bytes: Gaussian = (1e9, 1e8)
    gpus: Mapping[int, float] = field(default_factory=lambda: {1: 0.1, 2: 0.8, 3: 0.1})
    """GPUs of each process -> probability."""
    connections: Gaussian = (1e4, 1e3)
    net_bytes: Gaussian = (4 * GB, GB)
    memory: Gaussian = (8 * GB, GB)
    most_nodes: int = 100
    """Wider jobs are cut to this number of nodes."""

    def with_(self, **changes: Any) -> BatchJobModel:
        """Return this model with some fields changed."""
        return replace(self, **changes)

    def jobs(self, seed: int) -> list[BatchJob]:
        """Draw the job set; return it in the order of arrival."""
        return list(self._draw(random.Random(seed)))

    def _draw(self, rng: random.Random) -> Iterator[BatchJob]:
        now = 0.0
        counts, weights = list(self.gpus), list(self.gpus.values())
        # The order of the draws below decides what a seed stands for: published results depend on it.
        for number in range(self.count):
            now += rng.expovariate(1 / self.interarrival)
            (gpus,) = rng.choices(counts, weights)
            yield BatchJob(
                number,
                now,
                nodes=min(max(round(_gauss(rng, self.nodes)), 1), self.most_nodes),
                gpus=gpus,
                cpus=gpus,
                memory=_gauss(rng, self.memory),
                work=Work(
                    _gauss(rng, self.other_seconds),
                    calls=_gauss(rng, self.calls),
                    gpu_bytes=_gauss(rng, self.gpu_bytes),
                    connections=_gauss(rng, self.connections),
                    net_bytes=_gauss(rng, self.net_bytes),
                ),
            )


def magnitude(exponent: float) -> Gaussian:
    """Return Gauss(10^x, 10^(x-1)), as which the papers vary a quantity over orders of magnitude."""
    return 10.0**exponent, 10.0 ** (exponent - 1)


def _gauss(rng: random.Random, distribution: Gaussian) -> float:
    mean, variance = distribution
    return max(rng.gauss(mean, math.sqrt(variance)), 0.0)
