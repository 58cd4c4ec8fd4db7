# SPDX-License-Identifier: Apache-2.0
"""Access rules of settings."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

SHOW = "gsaas:settings:show"
UPDATE = "gsaas:settings:update"


def rules() -> list[policy.DocumentedRuleDefault]:
    """Return these rules with the requests that they guard."""
    return [
        policy.DocumentedRuleDefault(
            SHOW,
            base.ADMIN,
            "See the settings that override the configuration.",
            [{"method": "GET", "path": "/v1/settings"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            UPDATE,
            base.ADMIN,
            "Change how often all GPU hosts report.",
            [{"method": "PATCH", "path": "/v1/settings"}],
            scope_types=["project"],
        ),
    ]
