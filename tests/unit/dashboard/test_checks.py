# SPDX-License-Identifier: Apache-2.0
"""What the launch page says of a request."""

from __future__ import annotations

from gsaas_dashboard.presentation import checks

BUSY = {
    "fits": False,
    "code": "gsaas.capacity.busy",
    "reason": "2 of 8 GPUs are in use",
    "filters": [{"filter": "in-use", "gpus": 2}],
    "nearest": {"count": 6, "mode": "exclusive", "memory_mb": None, "locality": "any"},
    "relaxed": None,
}


def test_a_request_that_fits() -> None:
    answer = checks.answer({"fits": True, "filters": [], "nearest": None})
    assert (answer.fits, answer.sentence) == (True, "This request fits now.")
    assert checks.sentence(answer) == "This request fits now."


def test_a_request_that_does_not_fit_now_with_what_would() -> None:
    assert checks.sentence(checks.answer(BUSY)) == (
        "This request does not fit now. 2 of 8 GPUs are in use. This would fit now: 6 whole GPUs."
    )


def test_what_would_fit_without_a_requirement() -> None:
    nearest = {"count": 1, "mode": "shared", "memory_mb": 512, "locality": "any", "host": "gpu1"}
    said = checks.sentence(checks.answer({**BUSY, "nearest": nearest, "relaxed": "gpu_model"}))
    assert said.endswith("This would fit now: 1 cGPU of 512 MiB, GPU host gpu1, of another model.")


def test_a_request_that_never_fits() -> None:
    answer = checks.answer({"code": "gsaas.capacity.impossible", "reason": None, "nearest": None})
    assert checks.sentence(answer) == "This cloud can never serve this request."
