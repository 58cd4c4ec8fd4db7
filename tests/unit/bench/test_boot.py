# SPDX-License-Identifier: Apache-2.0
"""The stages into which `./dev bench boot` divides a boot."""

from __future__ import annotations

import pytest

from bench import boot
from bench.boots import Boot, phases

LEASE = {
    "timings": {
        "gpu_selection": 0.001,
        "check": 0.25,
        "claim": 0.002,
        "creation": 0.5,
        "activation": 3.0,
        "deployment": 0.1,
        "rodvr_configuration": 0.004,
    },
    "events": [
        {"event": "claim", "at": "2026-01-01T00:00:00.000000Z"},
        {"event": "boot", "at": "2026-01-01T00:00:00.530000Z"},
        {"event": "activate", "at": "2026-01-01T00:00:03.630000Z"},
    ],
}


def stages(booted: Boot) -> dict[str, float | None]:
    return {stage: boot._stage_seconds(booted, stage) for stage in boot.STAGES}


def test_the_time_between_claim_and_creation_counts_as_gsaas_work():
    assert phases(LEASE)["dispatch"] == pytest.approx(0.03)


def test_the_stages_of_a_boot_add_up_to_it_but_for_rodvr_which_works_meanwhile():
    found = stages(Boot(20.0, phases(LEASE)))
    assert found["management_s"] == pytest.approx(0.001 + 0.002 + 0.03 + 0.004)
    assert found["boot_s"] == 20.0
    told = sum(found[stage] for stage in boot.STAGES if stage != "boot_s")
    assert told == pytest.approx(20.0 + 0.004)


def test_a_boot_without_gsaas_has_the_stages_of_the_cloud_alone():
    found = stages(Boot(20.0, {"creation": 0.5, "activation": 3.5}))
    assert (found["checking_s"], found["management_s"]) == (None, None)
    assert found["deployment_s"] == pytest.approx(16.0)


def test_the_last_vms_are_compared_with_the_first():
    booted = [Boot(1.0, {"rodvr_configuration": 0.001 * (1 + number)}) for number in range(90)]
    (reach,) = boot._growth_bound("a cloud", booted, boot.Size())
    assert reach["value"] == pytest.approx(83 / 8)
    assert [row["vms"] for row in boot._many_rows("a cloud", booted, boot.Size())] == [
        15,
        30,
        45,
        60,
        75,
        90,
    ]
