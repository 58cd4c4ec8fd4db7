"""Who may redeem grants."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

REDEEM = "gsaas:grants:redeem"


def rules() -> list[policy.DocumentedRuleDefault]:
    return [
        policy.DocumentedRuleDefault(
            REDEEM,
            base.ADMIN_OR_SERVICE,
            "Redeem a grant that a consumer showed, and learn what it is for.",
            [{"method": "POST", "path": "/v1/grants/redeem"}],
            scope_types=["project"],
        ),
    ]
