# SPDX-License-Identifier: Apache-2.0
"""A cache of access decisions: each is valid for `MAX_AGE` seconds.

At every question oslo.policy checks whether the operator's files have changed and then evaluates the rule, which takes
longer than the rest of a short request. With the cache, a change of the files takes effect within `MAX_AGE` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from oslo_policy import policy

from gsaas.api import rbac
from gsaas.context import RequestContext

MAX_AGE = 1.0
"""Seconds."""
MAX_ENTRIES = 10_000
"""Decisions that are cached at a time."""


class DecisionCache:
    """Caches the decisions of *enforcer*. Safe to share between threads."""

    def __init__(
        self, enforcer: policy.Enforcer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._enforcer = enforcer
        self._clock = clock
        self._decisions: dict[tuple[object, ...], bool] = {}
        self._expires_at = clock() + MAX_AGE

    def allows(self, rule: str, target: Mapping[str, Any], context: RequestContext) -> bool:
        """Return whether *rule* allows the caller to act on *target*; a rule that does not exist allows nothing."""
        # All entries expire together. Threads that find this at once replace the dictionary twice, which is harmless:
        # each goes on with the dictionary it has a reference to.
        decisions = self._decisions
        if self._clock() > self._expires_at or len(decisions) > MAX_ENTRIES:
            decisions = self._decisions = {}
            self._expires_at = self._clock() + MAX_AGE
        question = (rule, *target.items(), context.identity)
        allowed = decisions.get(question)
        if allowed is None:
            allowed = decisions[question] = bool(self._enforcer.enforce(rule, target, context))
        return allowed

    def may_launch(self, context: RequestContext) -> bool:
        """Return whether a caller may launch leases in the project of *context*."""
        own = {"project_id": context.project_id, "user_id": context.user_id}
        return self.allows(rbac.LEASES_CREATE, own, context)
