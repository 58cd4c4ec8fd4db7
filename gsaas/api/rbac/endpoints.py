# SPDX-License-Identifier: Apache-2.0
"""Access rules of RODVR endpoints."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

LIST = "gsaas:endpoints:list"
SHOW = "gsaas:endpoints:show"


def rules() -> list[policy.DocumentedRuleDefault]:
    """Return these rules with the requests that they guard."""
    return [
        policy.DocumentedRuleDefault(
            LIST,
            base.ADMIN,
            "List the RODVR endpoints and what they reported last.",
            [{"method": "GET", "path": "/v1/endpoints"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            SHOW,
            base.ADMIN,
            "Show the RODVR endpoint of one host.",
            [{"method": "GET", "path": "/v1/endpoints/{host}"}],
            scope_types=["project"],
        ),
    ]
