# SPDX-License-Identifier: Apache-2.0
"""The models of GPUs on the launch page."""

from __future__ import annotations

from typing import Any

import pytest

from gsaas_dashboard.presentation import launches, models
from gsaasclient.sdk.gpus import Model

A100 = {
    "model": "NVIDIA A100-SXM4-40GB",
    "kind": "cuda",
    "memory_mb": 40960,
    "gpus": 4,
    "idle": 3,
    "free_mb": 133120,
    "largest_share_mb": 40960,
}


def choices(*found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the choices besides those that are always there."""
    made = models.choices([Model(**{**A100, **each}) for each in found])
    assert tuple(made[:2]) == models.ANY
    return made[2:]


def test_a_model_says_how_many_are_idle_and_how_large_a_share_may_be() -> None:
    assert choices({}) == [
        (
            "cuda/NVIDIA A100-SXM4-40GB",
            "NVIDIA A100-SXM4-40GB, 40960 MiB: 3 of 4 idle, shares of up to 40960 MiB",
        )
    ]


def test_a_model_of_which_nothing_is_free_says_so() -> None:
    used = {"idle": 0, "free_mb": 0, "largest_share_mb": 0}
    assert [text for _, text in choices(used)] == ["NVIDIA A100-SXM4-40GB, 40960 MiB: none free"]


def test_models_that_differ_in_memory_only_are_one_choice() -> None:
    """A request names a model by its name, and cannot tell them apart."""
    half = {"memory_mb": 20480, "gpus": 1, "idle": 0, "free_mb": 480, "largest_share_mb": 480}
    assert [text for _, text in choices({}, half)] == [
        "NVIDIA A100-SXM4-40GB, 20480 to 40960 MiB: 3 of 5 idle, shares of up to 40960 MiB"
    ]


@pytest.mark.parametrize(
    ("choice", "asked"),
    [
        ("", {}),
        ("cuda/", {"kind": "cuda"}),
        ("cpu/AMD EPYC 7543", {"kind": "cpu", "gpu_model": "AMD EPYC 7543"}),
        ("cuda/a/b", {"kind": "cuda", "gpu_model": "a/b"}),
    ],
)
def test_a_choice_asks_for_its_kind_and_its_model(choice: str, asked: dict[str, str]) -> None:
    form = {"count": 1, "mode": "exclusive", "gpu_model": choice}
    assert launches.cgpus(form) == {"count": 1, "mode": "exclusive", **asked}
