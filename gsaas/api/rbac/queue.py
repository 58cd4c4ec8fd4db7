"""Who may see the queue."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

LIST = "gsaas:queue:list"


def rules() -> list[policy.DocumentedRuleDefault]:
    return [
        policy.DocumentedRuleDefault(
            LIST,
            base.READER_OR_SERVICE,
            "See how many requests wait for GPUs, and the places of one's own project.",
            [{"method": "GET", "path": "/v1/queue"}],
            scope_types=["project"],
        )
    ]
