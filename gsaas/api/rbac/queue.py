# SPDX-License-Identifier: Apache-2.0
"""Access rules of the queue."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

LIST = "gsaas:queue:list"


def rules() -> list[policy.DocumentedRuleDefault]:
    """Return these rules with the requests that they guard."""
    return [
        policy.DocumentedRuleDefault(
            LIST,
            base.READER_OR_SERVICE,
            "See how many requests wait for GPUs, and the places of those of the caller's project.",
            [{"method": "GET", "path": "/v1/queue"}],
            scope_types=["project"],
        )
    ]
