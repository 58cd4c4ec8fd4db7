"""Who may see which scheduling policies there are."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

LIST = "gsaas:policies:list"


def rules() -> list[policy.DocumentedRuleDefault]:
    return [
        policy.DocumentedRuleDefault(
            LIST,
            base.READER_OR_SERVICE,
            "List the scheduling policies that a request may name.",
            [{"method": "GET", "path": "/v1/policies"}],
            scope_types=["project"],
        )
    ]
