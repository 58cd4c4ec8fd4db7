# SPDX-License-Identifier: Apache-2.0
"""The map of the GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from gsaas_dashboard.presentation import pool
from gsaasclient.sdk.gpus import Gpu
from gsaasclient.sdk.hosts import Host

LEASE = "0a2c5c06-32cd-421e-ba95-8b63f5ba0ea4"


def gpu(index: int = 0, host: str = "gpu1", **fields: Any) -> Gpu:
    values = {
        "uuid": f"GPU-{host}-{index}",
        "host": host,
        "index": index,
        "model": "NVIDIA A2",
        "memory_mb": 8192,
        "used_mb": 0,
        "mode": "free",
        "leases": [],
        "disabled": False,
    }
    return Gpu.existing(**(values | fields))


def host(name: str = "gpu1", **fields: Any) -> Host:
    return Host.existing(
        **({"name": name, "disabled": False, "silent": False, "problems": []} | fields)
    )


def test_hosts_and_their_gpus_are_in_order() -> None:
    rows = pool.rows([host("gpu2"), host("gpu1")], [gpu(1, "gpu2"), gpu(0, "gpu2"), gpu(0, "gpu1")])
    assert [(row.name, [tile.number for tile in row.tiles]) for row in rows] == [
        ("gpu1", [0]),
        ("gpu2", [0, 1]),
    ]


def test_a_host_that_the_list_does_not_have_is_shown_by_its_gpus() -> None:
    (row,) = pool.rows([], [gpu()])
    assert (row.name, row.state, row.notes) == ("gpu1", "in service", [])


@pytest.mark.parametrize(
    ("fields", "of_host", "state"),
    [
        ({}, {}, "free"),
        ({"mode": "shared", "used_mb": 2048}, {}, "shared"),
        ({"mode": "exclusive"}, {}, "exclusive"),
        ({"disabled": True}, {}, "disabled"),
        ({}, {"disabled": True}, "disabled"),
        ({}, {"silent": True}, "silent"),
        ({"withdrawn": "XID 79", "disabled": True}, {}, "failed"),
    ],
)
def test_a_tile_says_what_matters_most(
    fields: dict[str, Any], of_host: dict[str, Any], state: str
) -> None:
    tile = pool.tile(gpu(**fields), host(**of_host))
    assert tile.state == state
    assert tile.colour == dict(pool.COLOURS)[state]


def test_a_tile_says_all_in_words_as_well() -> None:
    tile = pool.tile(
        gpu(
            2,
            mode="shared",
            used_mb=2048,
            leases=[LEASE],
            disabled=True,
            disabled_reason="fan broken",
            withdrawn="XID 79",
            reading={"temperature_c": 61},
        ),
        host(),
    )
    assert tile.text == (
        "GPU 2, NVIDIA A2: failed, 2048 of 8192 MiB claimed, 61 °C, failed: XID 79, disabled: fan broken, 1 lease"
    )
    assert (tile.used, tile.temperature, tile.holders) == (25, "61 °C", [(LEASE, "0a2c5c06")])


def test_a_disabled_host_drains_until_its_last_lease_has_ended() -> None:
    disabled = host(disabled=True, disabled_reason="new fan")
    both = [gpu(0, leases=[LEASE]), gpu(1, leases=[LEASE, "other"])]
    assert pool.state(disabled, both) == "draining, 2 leases left"
    assert pool.state(disabled, both[:1]) == "draining, 1 lease left"
    assert pool.state(disabled, [gpu()]) == "drained"
    assert pool.notes(disabled) == ["disabled: new fan"]


def test_a_host_that_leases_leave_says_what_each_waits_for() -> None:
    left = [{"id": LEASE, "waits": "2 connections are open"}, {"id": "other", "waits": None}]
    draining = host(disabled=True, drain={"since": "2026-12-01", "by": None, "leases": left})
    assert pool.notes(draining) == [
        "disabled",
        "lease 0a2c5c06: 2 connections are open",
        "lease other: -",
    ]


def test_a_silent_host_and_its_problems() -> None:
    away = host(silent=True, problems=["no driver"])
    assert pool.state(away, []) == "silent"
    assert pool.notes(away) == ["no driver"]
    assert pool.notes(host(silent=True, disabled=True)) == ["disabled", "silent"]


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("state", "colour"), pool.COLOURS)
def test_white_text_can_be_read_on_every_colour(state: str, colour: str) -> None:
    """As WCAG 2.1 asks for at level AA."""
    assert 1.05 / (_luminance(colour) + 0.05) >= 4.5, state
