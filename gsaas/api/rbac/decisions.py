"""What the enforcer decided lately: the same question has the same answer for a moment.

oslo.policy looks for the operator's files at every question and then works through the rule, which takes longer than
all else in a short request. A change of the files is heeded within `KEPT` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from oslo_policy import policy

from gsaas.context import RequestContext

KEPT = 1.0
"""Seconds."""
MOST = 10_000
"""Answers that are remembered at a time."""


class Decisions:
    """Answers of *enforcer*, each asked for once in a while. Shared by all threads."""

    def __init__(
        self, enforcer: policy.Enforcer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._enforcer = enforcer
        self._clock = clock
        self._known: dict[tuple[object, ...], bool] = {}
        self._until = clock() + KEPT

    def allows(self, rule: str, target: Mapping[str, Any], context: RequestContext) -> bool:
        """May the caller do to *target* what *rule* guards? A rule that is not there allows nothing."""
        known = self._known
        if self._clock() > self._until or len(known) > MOST:
            known = self._known = {}
            self._until = self._clock() + KEPT
        question = (rule, *target.items(), context.identity)
        answer = known.get(question)
        if answer is None:
            answer = known[question] = bool(self._enforcer.enforce(rule, target, context))
        return answer
