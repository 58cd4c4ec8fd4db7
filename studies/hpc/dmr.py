# SPDX-License-Identifier: Apache-2.0
"""Chapter 6: when jobs resize through the DMR API, and the workloads that this is tried on.

1. A job that names a preferred size goes there and stays there while others wait; alone, it grows as far as it can
   (section 6.2, Algorithm 2).
2. A job that names none shrinks if another can start then, and only as far as that takes; otherwise it grows (Algorithm
   3). The job that it made room for starts next.
3. Sizes are doubled and halved only (the resizing factor is 2).

The published workloads were drawn from Feitelson's model; what is assumed of it here is said where it is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator

from studies.hpc.malleable import MalleableApplication, MalleableJob, ResizeRule

NODES = 64
"""Of the cluster that the three applications run on (section 6.5.3)."""
SYNTHETIC_NODES = 20
"""Of the one that the synthetic jobs run on (section 6.5.2)."""
INTERARRIVAL = 10.0
"""Mean, in seconds."""

APPLICATIONS = (
    MalleableApplication("CG", 2, 8, 32, 15, 10_000, 0.02, 190),
    MalleableApplication("Jacobi", 2, 8, 32, 15, 10_000, 0.02, 190),
    MalleableApplication("N-body", 1, 1, 16, None, 25, 0.82, 1210),
)
"""Limits, periods and iterations are those of Table 6.1. How long they run and how far they scale was chosen: within
what the limits say (N-body gains less than 10 % from a second process), and such that the jobs of Table 6.5 run
about as long, rigid and malleable, as published, and rigid ones allocate as many nodes."""

STEPS = 25
LONGEST_STEP = 60.0
"""Of a synthetic job, in seconds; its number of steps as in Table 6.1."""
SHORT_STEP, LONG_STEP = 10.0, 60.0
"""Means of the two exponential distributions that a step is drawn from: an assumption."""
POWER_OF_TWO = 10.0
"""How many times as often as other sizes powers of two are asked for: an assumption."""


def jobs(count: int, seed: int) -> list[MalleableJob]:
    """Draw *count* jobs of the three applications, each a third of them, in random order."""
    rng = random.Random(seed)
    applications = [APPLICATIONS[number % len(APPLICATIONS)] for number in range(count)]
    rng.shuffle(applications)
    return [
        MalleableJob(number, at, application)
        for number, (at, application) in enumerate(zip(_arrivals(rng), applications, strict=False))
    ]


def synthetic_jobs(count: int, seed: int) -> list[MalleableJob]:
    """Draw *count* jobs that sleep, and so scale without a limit ("flexible sleep").

    The sizes follow a harmonic distribution of order 1.5 that prefers powers of two; large jobs have long steps more
    often.
    """
    rng = random.Random(seed)
    sizes = range(1, SYNTHETIC_NODES + 1)
    weights = [size**-1.5 * (POWER_OF_TWO if size & (size - 1) == 0 else 1) for size in sizes]
    drawn = []
    for number, at in zip(range(count), _arrivals(rng), strict=False):
        (size,) = rng.choices(sizes, weights)
        is_short = rng.random() < 0.95 - 0.2 * size / SYNTHETIC_NODES
        step = min(rng.expovariate(1 / (SHORT_STEP if is_short else LONG_STEP)), LONGEST_STEP)
        seconds = STEPS * step * size / SYNTHETIC_NODES
        drawn.append(
            MalleableJob(
                number,
                at,
                MalleableApplication(
                    "FS", 1, SYNTHETIC_NODES, SYNTHETIC_NODES, None, STEPS, 0.0, seconds, size
                ),
            )
        )
    return drawn


def choose_preferred(
    application: MalleableApplication, count: int, idle: int, needs: Collection[int]
) -> int:
    """Return how many cGPUs a job with *count* should have while *idle* are idle (Algorithm 2).

    *needs* are the cGPUs that each of the jobs that wait needs at least to start.
    """
    if not needs:
        return _grown(count, idle, application.maximum)
    if count < application.preferred:
        return _grown(count, idle, application.preferred)
    return application.preferred


def choose_widely(
    application: MalleableApplication, count: int, idle: int, needs: Collection[int]
) -> int:
    """Return the same for a job that prefers no size (Algorithm 3)."""
    smaller = count
    while needs and smaller % 2 == 0 and smaller // 2 >= application.minimum:
        smaller //= 2
        if min(needs) <= idle + count - smaller:
            return smaller
    return _grown(count, idle, application.maximum)


ALGORITHM_2 = ResizeRule(choose_preferred, serves_next=False)
ALGORITHM_3 = ResizeRule(choose_widely, serves_next=True)


def _grown(count: int, idle: int, most: int) -> int:
    """Return *count*, doubled as often as *most* and the *idle* ones allow."""
    while 2 * count <= min(most, count + idle):
        idle -= count
        count *= 2
    return count


def _arrivals(rng: random.Random) -> Iterator[float]:
    """Yield the times of arrivals without an end."""
    now = 0.0
    while True:
        now += rng.expovariate(1 / INTERARRIVAL)
        yield now
