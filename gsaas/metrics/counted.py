"""What happened in this process since it started: counters, and how long launches took.

Each thing is counted once, by the process in which it happens: launches are answered by an API worker, and become
ACTIVE in an engine. Prometheus adds up what it finds in all of them, and knows what a restart is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from gsaas import exceptions, timings

REGISTRY = CollectorRegistry()
disable_created_metrics()  # a second family for each counter, which nobody asks for

SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 25, 50, 100, 250, 500),
)
"""Upper bounds: choosing a GPU takes less than a millisecond, booting a slow image minutes."""

GRANTED = Counter(
    "gsaas_launches_granted",
    "Launches that were given GPUs, by the scheduling policy that chose them.",
    ["policy"],
    registry=REGISTRY,
)
REFUSED = Counter(
    "gsaas_launches_refused",
    "Launches that were refused, by the code of the error.",
    ["code"],
    registry=REGISTRY,
)
PHASES = Histogram(
    "gsaas_launch_phase_seconds",
    "Seconds that each phase of a launch took, for leases that became ACTIVE.",
    ["phase"],
    buckets=SECONDS,
    registry=REGISTRY,
)


@contextmanager
def refusals() -> Iterator[None]:
    """Count the error that ends the block, if one does."""
    try:
        yield
    except exceptions.GsaasError as refusal:
        REFUSED.labels(refusal.code).inc()
        raise


def granted(policy: str) -> None:
    """Count a launch whose GPUs *policy* chose."""
    GRANTED.labels(policy).inc()


def launched(took: Mapping[str, float]) -> None:
    """Note how long each phase took of a launch that has come to its end: `gsaas.timings`, in seconds."""
    for phase in timings.PHASES:
        if phase in took:
            PHASES.labels(phase).observe(took[phase])
