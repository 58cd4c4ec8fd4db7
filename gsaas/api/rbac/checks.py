# SPDX-License-Identifier: Apache-2.0
"""Access rules of dry runs."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

CREATE = "gsaas:checks:create"


def rules() -> list[policy.DocumentedRuleDefault]:
    """Return these rules with the requests that they guard."""
    return [
        policy.DocumentedRuleDefault(
            CREATE,
            base.MEMBER,
            "Ask whether a request for cGPUs would fit now.",
            [{"method": "POST", "path": "/v1/checks"}],
            scope_types=["project"],
        )
    ]
