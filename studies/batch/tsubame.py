# SPDX-License-Identifier: Apache-2.0
"""A year of synthetic jobs like those of TSUBAME2.5's G queue, whose log is not public.

The properties of the log that the papers give are kept: 63,484 jobs on 480 nodes; one, two or three GPUs per process
with probabilities 0.025, 0.124 and 0.851; and the mean execution and wait (2014: section IV and Table III: 25.24 % of
the wait are 963.60 s and 5.06 % of the lifetime 959.65 s, so jobs waited about 3,820 s and ran about 15,150 s).
The rest is assumed here: durations and numbers of nodes are log-normal, and jobs arrive faster by day than by night
and faster before deadlines.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from studies.batch.jobs import BatchJob
from studies.batch.models import GB, Work

JOBS = 63_484
NODES = 480
GPUS = {1: 0.025, 2: 0.124, 3: 0.851}
MEAN_EXECUTION = 15_150.0
SPREAD = 1.3
"""Standard deviation of the logarithm of durations."""
MEDIAN_NODES = 2.0
NODES_SPREAD = 1.1
MOST_NODES = 64
LOAD = 0.78
"""The fraction of all nodes that the jobs need on average."""
DAY = 86_400.0
BY_DAY = 0.5
"""The amplitude of the arrival rate over a day..."""
DEADLINES = 14 * DAY
BEFORE_DEADLINES = 0.3
"""... and over two weeks, the assumed time between deadlines."""


def jobs(seed: int, count: int = JOBS, nodes: int = NODES) -> list[BatchJob]:
    """Draw *count* jobs that keep *nodes* nodes as busy as the G queue's; return them in the order of arrival."""
    return list(_draw(random.Random(seed), count, nodes))


def _draw(rng: random.Random, count: int, nodes: int) -> Iterator[BatchJob]:
    interarrival = MEAN_EXECUTION * _mean_nodes() / (nodes * LOAD)
    now = 0.0
    counts, weights = list(GPUS), list(GPUS.values())
    for number in range(count):
        rate = 1 + BY_DAY * math.sin(2 * math.pi * now / DAY)
        rate *= 1 + BEFORE_DEADLINES * math.sin(2 * math.pi * now / DEADLINES)
        now += rng.expovariate(rate / interarrival)
        (gpus,) = rng.choices(counts, weights)
        memory = min(max(rng.gauss(8, 1), 0.5), 22) * GB
        duration = rng.lognormvariate(math.log(MEAN_EXECUTION) - SPREAD**2 / 2, SPREAD)
        yield BatchJob(
            number,
            now,
            nodes=min(_nodes(rng), nodes),
            gpus=gpus,
            cpus=gpus,
            memory=memory,
            work=Work(
                duration,
                calls=rng.uniform(100, 100_000),
                gpu_bytes=memory,
                peer_bytes=memory,
                connections=rng.uniform(100, 100_000),
                net_bytes=memory,
            ),
        )


def _nodes(rng: random.Random) -> int:
    return min(max(round(rng.lognormvariate(math.log(MEDIAN_NODES), NODES_SPREAD)), 1), MOST_NODES)


def _mean_nodes() -> float:
    """Return the mean of `_nodes`, estimated from draws with a fixed seed, so that it is the same for all job sets."""
    rng = random.Random(0)
    return sum(_nodes(rng) for _ in range(100_000)) / 100_000
