# SPDX-License-Identifier: Apache-2.0
"""Whether a request would fit, as the launch page says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gsaas_dashboard.presentation.leases import requirements

NEVER = "gsaas.capacity.impossible"
INSTEAD = {
    "compute_capability": "with a lower compute capability",
    "gpu_model": "of another model",
    "host": "on another GPU host",
    "hosts": "on any GPU hosts",
}
"""Requirement -> what there would be without it."""


class Answer(NamedTuple):
    """What the page says of a request."""

    fits: bool
    sentence: str
    reason: str = ""
    nearest: str = ""
    """The largest similar request that would fit now; empty if there is none."""


def answer(facts: Mapping[str, Any]) -> Answer:
    """Return what to say of a check, or of the error of a launch: `fits`, `code`, `reason`, `nearest`, `relaxed`."""
    if facts.get("fits"):
        return Answer(True, "This request fits now.")
    never = facts.get("code") == NEVER
    return Answer(
        fits=False,
        sentence="This cloud can never serve this request."
        if never
        else "This request does not fit now.",
        reason=facts.get("reason") or "",
        nearest=_request(facts.get("nearest"), facts.get("relaxed")),
    )


def sentence(answer: Answer) -> str:
    """Return all of an answer as one text, for a form's error."""
    parts = [
        answer.sentence,
        f"{answer.reason[:1].upper()}{answer.reason[1:]}." if answer.reason else "",
    ]
    if answer.nearest:
        parts.append(f"This would fit now: {answer.nearest}.")
    return " ".join(part for part in parts if part)


def _request(cgpus: Mapping[str, Any] | None, relaxed: str | None) -> str:
    """Return a request in words; *relaxed* is the requirement that it lacks."""
    if not cgpus:
        return ""
    count, memory = cgpus["count"], cgpus.get("memory_mb")
    plural = "" if count == 1 else "s"
    asked = f"{count} cGPU{plural} of {memory} MiB" if memory else f"{count} whole GPU{plural}"
    found = (f"{name} {value}" for name, value in requirements(cgpus) if name != "kind")
    return ", ".join([asked, *found, *([INSTEAD.get(relaxed, relaxed)] if relaxed else [])])
