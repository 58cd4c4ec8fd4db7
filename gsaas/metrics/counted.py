"""What happened in this process since it started: counters, and how long launches took.

Each thing is counted once, by the process in which it happens: launches are answered by an API worker, and become
ACTIVE in an engine. Prometheus adds up what it finds in all of them, and knows what a restart is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from gsaas import exceptions
from gsaas.objects import timings

REGISTRY = CollectorRegistry()
disable_created_metrics()  # a second family for each counter, which nobody asks for

SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 25, 50, 100, 250, 500),
)
"""Upper bounds: choosing a GPU takes less than a millisecond, booting a slow image minutes."""

REQUEST_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Upper bounds, fewer, as there is one histogram for each route."""

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
GRANTS = Counter(
    "gsaas_grants_shown",
    "Grants that consumers showed, by what became of them.",
    ["outcome"],
    registry=REGISTRY,
)
PHASES = Histogram(
    "gsaas_launch_phase_seconds",
    "Seconds that each phase of a launch took, for leases that became ACTIVE.",
    ["phase"],
    buckets=SECONDS,
    registry=REGISTRY,
)
REQUESTS = Counter(
    "gsaas_api_requests",
    "Requests that this API answered, by method, route and HTTP status.",
    ["method", "route", "status"],
    registry=REGISTRY,
)
REQUEST_SECONDS = Histogram(
    "gsaas_api_request_seconds",
    "Seconds that each request took, by method and route; those of clients that wait for their turn are left out.",
    ["method", "route"],
    buckets=REQUEST_BOUNDS,
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


def grant(outcome: str) -> None:
    """Count a grant that was shown: redeemed, or refused for that reason."""
    GRANTS.labels(outcome).inc()


def answered(method: str, route: str, status: int, seconds: float | None) -> None:
    """Count a request, and how long it took, unless its client wanted to wait (None)."""
    _requests(method, route, status).inc()
    if seconds is not None:
        _request_seconds(method, route).observe(seconds)


@functools.cache
def _requests(method: str, route: str, status: int) -> Counter:
    """Looking a series up costs more than counting, and this is done for every request."""
    return REQUESTS.labels(method, route, str(status))


@functools.cache
def _request_seconds(method: str, route: str) -> Histogram:
    return REQUEST_SECONDS.labels(method, route)


def launched(took: Mapping[str, float]) -> None:
    """Note how long each phase took of a launch that has come to its end: `gsaas.objects.timings`, in seconds."""
    for phase in timings.PHASES:
        if phase in took:
            PHASES.labels(phase).observe(took[phase])
