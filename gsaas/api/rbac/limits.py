# SPDX-License-Identifier: Apache-2.0
"""Access rules of quotas."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

SHOW = "gsaas:limits:show"


def rules() -> list[policy.DocumentedRuleDefault]:
    """Return these rules with the requests that they guard."""
    return [
        policy.DocumentedRuleDefault(
            SHOW,
            base.READER_OR_SERVICE,
            "See the quota of the caller's project, and how much of it is used.",
            [{"method": "GET", "path": "/v1/limits"}],
            scope_types=["project"],
        )
    ]
