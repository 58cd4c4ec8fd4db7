# SPDX-License-Identifier: Apache-2.0
"""What the dashboard says of a lease."""

from __future__ import annotations

from typing import Any

import pytest

from gsaas_dashboard.presentation import leases
from gsaasclient.sdk.leases import Lease

SHARED = {
    "count": 2,
    "mode": "shared",
    "memory_mb": 2048,
    "locality": "any",
    "policy": "best-fit",
    "gpu_model": None,
    "hosts": "spread",
}


def lease(**fields: Any) -> Lease:
    return Lease.existing(id="0a2c5c06", name="training", **fields)


@pytest.mark.parametrize(
    ("cgpus", "said"),
    [
        (SHARED, "2 x 2048 MiB, shared"),
        ({"count": 1, "mode": "exclusive", "memory_mb": None}, "1 x whole GPU"),
        (None, "-"),
    ],
)
def test_a_request_is_said_in_short(cgpus: dict[str, Any] | None, said: str) -> None:
    assert leases.asked(cgpus) == said


def test_only_requirements_that_were_made_are_named() -> None:
    assert leases.requirements(SHARED) == [("policy", "best-fit"), ("GPU hosts", "spread")]
    assert leases.requirements(None) == []


def test_a_waiting_lease_is_shown_with_its_place() -> None:
    waiting = lease(status="QUEUED", queue={"position": 2, "length": 5, "estimate_seconds": 200})
    assert leases.status(waiting) == "QUEUED (2 of 5, about 3 min 20 s)"
    assert leases.place({"position": 1, "length": 1, "estimate_seconds": None}) == "1 of 1"
    assert leases.place(None) == ""


def test_a_degraded_lease_is_shown_as_such() -> None:
    assert leases.status(lease(status="ACTIVE", degraded=True)) == "ACTIVE (degraded)"
    assert leases.status(lease(status="ACTIVE", degraded=False)) == "ACTIVE"


def test_an_idle_lease_is_shown_with_the_time_at_which_it_ends() -> None:
    idle = lease(status="ACTIVE", degraded=False, reclaim_at="2026-11-24T14:05:00.000000Z")
    assert leases.status(idle) == "ACTIVE (idle, ends at 2026-11-24 14:05:00 UTC)"
    assert leases.warnings(idle) == [
        "It is idle, and ends at 2026-11-24 14:05:00 UTC unless something uses it before."
    ]
    both = lease(status="ACTIVE", degraded=True, reclaim_at="2026-11-24T14:05:00.000000Z")
    assert leases.status(both) == "ACTIVE (degraded; idle, ends at 2026-11-24 14:05:00 UTC)"


@pytest.mark.parametrize("fields", [{}, {"reclaim_at": None}], ids=["older API", "in use"])
def test_a_lease_without_a_warning_has_no_time_at_which_it_ends(fields: dict[str, Any]) -> None:
    used = lease(status="ACTIVE", degraded=False, **fields)
    assert (leases.status(used), leases.warnings(used)) == ("ACTIVE", [])


def test_a_lease_can_be_released_until_it_ends() -> None:
    statuses = [*leases.MEANINGS]
    assert [s for s in statuses if not leases.can_be_released(lease(status=s))] == [
        "RELEASING",
        "RELEASED",
    ]
    assert [s for s in statuses if leases.is_resting(lease(status=s))] == [
        "ACTIVE",
        "RELEASED",
        "ERROR",
    ]


def test_devices_have_the_address_that_programs_use() -> None:
    shown = lease(
        status="ACTIVE",
        devices=[
            {"index": 0, "masked_address": "169.254.71.1:8308", "memory_mb": 2048},
            {
                "index": 1,
                "masked_address": None,
                "memory_mb": 8192,
                "real_address": "10.0.0.1:8308",
            },
            {"index": 2, "masked_address": None, "memory_mb": None},
        ],
    )
    assert leases.devices(shown) == [
        (0, "169.254.71.1:8308", "2048 MiB"),
        (1, "10.0.0.1:8308", "8192 MiB"),
        (2, "-", "-"),
    ]
    assert leases.devices(lease(status="QUEUED")) == []


def test_the_environment_is_written_as_a_file() -> None:
    variables = {"RCUDA_DEVICE_COUNT": "1", "RCUDA_DEVICE_0": "169.254.71.1:0"}
    assert leases.exports(variables) == "RCUDA_DEVICE_COUNT=1\nRCUDA_DEVICE_0=169.254.71.1:0"
    assert leases.exports(None) == ""
