# SPDX-License-Identifier: Apache-2.0
"""Whether a request would fit, as the launch page says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gsaas_dashboard.presentation.leases import asked, requirements

NEVER = "gsaas.capacity.impossible"


class Answer(NamedTuple):
    """What the page says of a request."""

    fits: bool
    sentence: str
    reason: str = ""
    excluded: tuple[tuple[str, int], ...] = ()
    """Filter -> the GPUs that it excluded."""
    nearest: str = ""
    """The largest similar request that would fit now; empty if there is none."""
    relaxed: str = ""
    """The requirement that `nearest` lacks."""


def answer(facts: Mapping[str, Any]) -> Answer:
    """Return what to say of a check, or of the error of a launch: `fits`, `code`, `reason`, `filters`, `nearest`."""
    if facts.get("fits"):
        return Answer(True, "This request fits now.")
    never = facts.get("code") == NEVER
    return Answer(
        fits=False,
        sentence="This cloud can never serve this request."
        if never
        else "This request does not fit now.",
        reason=facts.get("reason") or "",
        excluded=tuple((each["filter"], each["gpus"]) for each in facts.get("filters") or ()),
        nearest=_request(facts.get("nearest")),
        relaxed=facts.get("relaxed") or "",
    )


def sentence(answer: Answer) -> str:
    """Return all of an answer as one text, for a form's error."""
    parts = [
        answer.sentence,
        f"{answer.reason[:1].upper()}{answer.reason[1:]}." if answer.reason else "",
    ]
    if answer.nearest:
        without = f", without {answer.relaxed}" if answer.relaxed else ""
        parts.append(f"This would fit now{without}: {answer.nearest}.")
    return " ".join(part for part in parts if part)


def _request(cgpus: Mapping[str, Any] | None) -> str:
    if not cgpus:
        return ""
    return ", ".join([asked(cgpus), *(f"{name} {value}" for name, value in requirements(cgpus))])
