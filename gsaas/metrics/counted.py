# SPDX-License-Identifier: Apache-2.0
"""Counters and histograms of what has happened in this process since it started.

Each event is counted once, by the process in which it happens: an API worker counts the launches that it answers, an
engine those that it makes ACTIVE. Prometheus adds up the counters of all processes, and handles their restarts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from gsaas import exceptions
from gsaas.objects import timings
from gsaas.objects.lifecycle import Status

REGISTRY = CollectorRegistry()
disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double the families of counters

SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 25, 50, 100, 250, 500),
)
"""Upper bounds of buckets: choosing a GPU takes less than a millisecond, booting a slow image takes minutes."""

REQUEST_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Upper bounds of buckets; fewer, because there is one histogram for each route."""

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
NOTIFICATIONS_DROPPED = Counter(
    "gsaas_notifications_dropped",
    "Notifications that were not sent, by reason.",
    ["reason"],
    registry=REGISTRY,
)
REPORT_VALUES_LEFT_OUT = Counter(
    "gsaas_report_values_left_out",
    "Values in the reports of hosts that were not valid and were left out, by the kind of report.",
    ["report"],
    registry=REGISTRY,
)
CLAIM_ATTEMPTS = Counter(
    "gsaas_claim_attempts",
    "Transactions that tried to claim GPUs for a launch; more than launches, where concurrent claims chose one GPU.",
    registry=REGISTRY,
)
FULL_READS = Counter(
    "gsaas_pool_full_reads",
    "Times that this process has read all GPUs: at its start, after a GPU was deleted, and before some refusals.",
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


Announce = Callable[[str, str, str | None, Mapping[str, float] | None], None]
"""Called with a lease's id, its status, the policy that chose its GPUs, and the seconds that each phase took."""


def counting_launches(announce: Announce) -> Announce:
    """Return *announce* so that it also counts each lease that it announces as launched.

    For leases from the queue: a lease that got its GPUs counts as granted, and one that is ACTIVE already has come to
    the end of its launch.
    """

    def count_and_announce(
        lease_id: str, status: str, policy: str | None, took: Mapping[str, float] | None
    ) -> None:
        if policy is not None and status in (Status.CLAIMED, Status.ACTIVE):
            granted(policy)
        if status == Status.ACTIVE:
            launched(took or {})
        announce(lease_id, status, policy, took)

    return count_and_announce


@contextmanager
def refusals() -> Iterator[None]:
    """Count a `GsaasError` that leaves the block as a refused launch."""
    try:
        yield
    except exceptions.GsaasError as refusal:
        REFUSED.labels(refusal.code).inc()
        raise


def granted(policy: str) -> None:
    """Count a launch that got GPUs, chosen by *policy*."""
    GRANTED.labels(policy).inc()


def claim_attempt() -> None:
    """Count a transaction that tries to claim GPUs."""
    CLAIM_ATTEMPTS.inc()


def full_read() -> None:
    """Count a reading of all GPUs."""
    FULL_READS.inc()


def grant(outcome: str) -> None:
    """Count a grant that a consumer showed; *outcome* is `redeemed`, or the `outcome` of a `GrantRefused`."""
    GRANTS.labels(outcome).inc()


def notification_dropped(reason: str) -> None:
    """Count a notification that is not sent: `buffer-full`, `rate` or `error`."""
    NOTIFICATIONS_DROPPED.labels(reason).inc()


def report_values_left_out(report: str, count: int) -> None:
    """Count values of a report that were not valid; *report* is `gpus`, `daemons` or `endpoint`."""
    REPORT_VALUES_LEFT_OUT.labels(report).inc(count)


def answered(method: str, route: str, status: int, seconds: float | None) -> None:
    """Count an answered request, and observe its *seconds*, which are None if its client waited for its turn."""
    _requests(method, route, status).inc()
    if seconds is not None:
        _request_seconds(method, route).observe(seconds)


@functools.cache
def _requests(method: str, route: str, status: int) -> Counter:
    """Return the series of these labels. Cached, because a look-up costs more than counting, at every request."""
    return REQUESTS.labels(method, route, str(status))


@functools.cache
def _request_seconds(method: str, route: str) -> Histogram:
    return REQUEST_SECONDS.labels(method, route)


def launched(took: Mapping[str, float]) -> None:
    """Observe the seconds that each phase of a completed launch took, by its name in `gsaas.objects.timings`."""
    for phase in timings.PHASES:
        if phase in took:
            PHASES.labels(phase).observe(took[phase])
