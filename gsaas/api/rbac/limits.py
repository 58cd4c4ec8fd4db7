"""Who may see quotas."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

SHOW = "gsaas:limits:show"


def rules() -> list[policy.DocumentedRuleDefault]:
    return [
        policy.DocumentedRuleDefault(
            SHOW,
            base.READER_OR_SERVICE,
            "See how much the caller's project may hold, and how much it does.",
            [{"method": "GET", "path": "/v1/limits"}],
            scope_types=["project"],
        )
    ]
