# SPDX-License-Identifier: Apache-2.0
"""GPUs and requests as values: what they compute, and which values they refuse."""

from __future__ import annotations

import pytest

from gsaas.objects.gpu import Gpu, WithheldReason
from gsaas.objects.placement import Placement, Share
from gsaas.objects.request import Request


@pytest.fixture
def gpu() -> Gpu:
    return Gpu("GPU-1", "a", 0, memory_mb=1000, used_mb=400, generation=7)


def test_a_claim_takes_memory_and_gives_the_gpu_a_new_generation(gpu):
    assert gpu.claim(600, exclusive=False, generation=8) == Gpu(
        "GPU-1", "a", 0, memory_mb=1000, used_mb=1000, generation=8, leases=1, given=8
    )


def test_a_release_returns_exactly_what_the_claim_took(gpu):
    claimed = gpu.claim(500, exclusive=False, generation=8)

    assert claimed.release(500, generation=7) == gpu.with_(given=8)


@pytest.mark.parametrize("memory_mb", [601, 1000])
def test_a_claim_of_more_than_is_free_is_refused(gpu, memory_mb):
    with pytest.raises(ValueError, match="of 1000 MiB of GPU-1 in use"):
        gpu.claim(memory_mb, exclusive=False, generation=8)


def test_a_release_of_more_than_was_claimed_is_refused(gpu):
    with pytest.raises(ValueError, match="-1 of 1000 MiB"):
        gpu.release(401, generation=8)


def test_only_an_idle_gpu_is_claimed_exclusively(gpu):
    with pytest.raises(ValueError, match="in use already"):
        gpu.claim(600, exclusive=True, generation=8)


def test_a_gpu_claimed_exclusively_has_nothing_available():
    idle = Gpu("GPU-1", "a", 0, memory_mb=1000)
    held = idle.claim(1000, exclusive=True, generation=1)

    assert (held.available("shared"), held.available("exclusive")) == (0, 0)
    with pytest.raises(ValueError, match="in use already"):
        held.claim(0, exclusive=False, generation=2)


def test_a_gpu_claimed_exclusively_is_claimed_whole():
    with pytest.raises(ValueError, match="not all of its memory"):
        Gpu("GPU-1", "a", 0, memory_mb=1000, used_mb=500, exclusive=True)


@pytest.mark.parametrize("reason", WithheldReason)
def test_a_withheld_gpu_has_nothing_available(gpu, reason):
    assert gpu.with_(withheld=reason).available("shared") == 0


@pytest.mark.parametrize(
    "contradiction",
    [
        {"count": 0},
        {"count": 1, "mode": "both"},
        {"count": 1, "locality": "nearby"},
        {"count": 1, "mode": "shared"},
        {"count": 1, "mode": "shared", "memory_mb": 0},
        {"count": 1, "mode": "exclusive", "memory_mb": 1024},
    ],
)
def test_a_request_cannot_contradict_itself(contradiction):
    with pytest.raises(ValueError):
        Request(**contradiction)


def test_a_placement_adds_up_what_it_wants_of_each_gpu_in_the_order_of_uuids():
    placement = Placement((Share("GPU-2", 10), Share("GPU-1", 20), Share("GPU-2", 30)))

    assert list(placement.memory_by_gpu().items()) == [("GPU-1", 20), ("GPU-2", 40)]
