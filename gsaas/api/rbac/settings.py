"""Who may see and change settings."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

SHOW = "gsaas:settings:show"
UPDATE = "gsaas:settings:update"


def rules() -> list[policy.DocumentedRuleDefault]:
    return [
        policy.DocumentedRuleDefault(
            SHOW,
            base.ADMIN,
            "See what was changed while the service ran.",
            [{"method": "GET", "path": "/v1/settings"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            UPDATE,
            base.ADMIN,
            "Change, for all GPU hosts, how often they report.",
            [{"method": "PATCH", "path": "/v1/settings"}],
            scope_types=["project"],
        ),
    ]
