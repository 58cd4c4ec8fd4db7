# SPDX-License-Identifier: Apache-2.0
"""Access rules of scheduling policies."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

LIST = "gsaas:policies:list"
UPDATE = "gsaas:policies:update"


def rules() -> list[policy.DocumentedRuleDefault]:
    """Return these rules with the requests that they guard."""
    return [
        policy.DocumentedRuleDefault(
            LIST,
            base.READER_OR_SERVICE,
            "List the scheduling policies that a request may name.",
            [
                {"method": "GET", "path": "/v1/policies"},
                {"method": "GET", "path": "/v1/policies/{policy}"},
            ],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            UPDATE,
            base.ADMIN,
            "Set the scheduling policy for requests that name none.",
            [{"method": "PATCH", "path": "/v1/policies"}],
            scope_types=["project"],
        ),
    ]
