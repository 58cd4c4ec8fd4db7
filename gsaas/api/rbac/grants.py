# SPDX-License-Identifier: Apache-2.0
"""Access rules of grants."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

REDEEM = "gsaas:grants:redeem"


def rules() -> list[policy.DocumentedRuleDefault]:
    """Return these rules with the requests that they guard."""
    return [
        policy.DocumentedRuleDefault(
            REDEEM,
            base.ADMIN_OR_SERVICE,
            "Redeem a grant that a consumer presented, and see which GPUs it admits to.",
            [{"method": "POST", "path": "/v1/grants/redeem"}],
            scope_types=["project"],
        ),
    ]
