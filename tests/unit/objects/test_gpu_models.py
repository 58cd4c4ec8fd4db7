# SPDX-License-Identifier: Apache-2.0
"""The models of a cloud's GPUs, as tenants see them."""

from __future__ import annotations

from gsaas.objects.gpu import Gpu, WithheldReason
from gsaas.objects.gpu_models import GpuModel, models_of

A100, H100 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"


def a100(number: int, **more) -> Gpu:
    facts = {"memory_mb": 40960, "model": A100, "compute_capability": (8, 0), **more}
    return Gpu(f"GPU-{number:04d}", f"gpu{number % 3}", number, **facts)


def test_equal_gpus_are_counted_together_whatever_their_hosts():
    free, shared, whole = (
        a100(1),
        a100(2, used_mb=30720, leases=2),
        a100(3, used_mb=40960, exclusive=True, leases=1),
    )
    assert models_of([free, shared, whole]) == [
        GpuModel(A100, "cuda", (8, 0), 40960, 3, idle=1, free_mb=51200, largest_share_mb=40960)
    ]


def test_the_largest_share_has_to_fit_on_one_gpu():
    (model,) = models_of([a100(1, used_mb=40000), a100(2, used_mb=40900)])
    assert (model.idle, model.free_mb, model.largest_share_mb) == (0, 960 + 60, 960)


def test_gpus_that_new_leases_do_not_get_do_not_count():
    withheld = [a100(number, withheld=reason) for number, reason in enumerate(WithheldReason)]
    assert models_of(withheld) == []
    (model,) = models_of([*withheld, a100(9)])
    assert (model.gpus, model.idle, model.free_mb) == (1, 1, 40960)


def test_what_reservations_keep_is_not_free():
    (model,) = models_of([a100(1, reserved_mb=40960), a100(2, reserved_mb=960)])
    assert (model.gpus, model.idle) == (2, 0)
    assert (model.free_mb, model.largest_share_mb) == (40000, 40000)


def test_gpus_that_a_request_can_tell_apart_are_different_models():
    """GPUs of NVIDIA come first, and each kind is in the order of names and memory."""
    processor = {"model": "AMD EPYC 7543", "compute_capability": None}
    found = models_of(
        [
            a100(1).with_(uuid="CPU-gpu1/0", memory_mb=4096, **processor),
            a100(2, model=H100, memory_mb=81920, compute_capability=(9, 0)),
            a100(3, memory_mb=20480),
            a100(4, compute_capability=None),
            a100(5),
        ]
    )
    assert [(m.model, m.kind, m.memory_mb, m.compute_capability) for m in found] == [
        (A100, "cuda", 20480, (8, 0)),
        (A100, "cuda", 40960, None),
        (A100, "cuda", 40960, (8, 0)),
        (H100, "cuda", 81920, (9, 0)),
        ("AMD EPYC 7543", "cpu", 4096, None),
    ]


def test_a_cloud_without_gpus_has_no_models():
    assert models_of([]) == []
