# SPDX-License-Identifier: Apache-2.0
"""Access rules of hosts."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

LIST = "gsaas:hosts:list"
SHOW = "gsaas:hosts:show"
UPDATE = "gsaas:hosts:update"
DELETE = "gsaas:hosts:delete"


def rules() -> list[policy.DocumentedRuleDefault]:
    """Return these rules with the requests that they guard."""
    return [
        policy.DocumentedRuleDefault(
            LIST,
            base.READER_OR_SERVICE,
            "See how many hosts with GPUs the cloud has. The hosts themselves are listed for callers "
            "that gsaas:hosts:show allows.",
            [{"method": "GET", "path": "/v1/hosts"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            SHOW,
            base.ADMIN,
            "See each host: its GPUs, its agents, and whether these still report.",
            [
                {"method": "GET", "path": "/v1/hosts"},
                {"method": "GET", "path": "/v1/hosts/{name}"},
            ],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            UPDATE,
            base.ADMIN,
            "Disable a host, so that new leases do not get its GPUs, or enable it again.",
            [{"method": "PATCH", "path": "/v1/hosts/{name}"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            DELETE,
            base.ADMIN,
            "Declare a host permanently gone: leases with GPUs of it fail, and its bindings count as removed.",
            [{"method": "DELETE", "path": "/v1/hosts/{name}"}],
            scope_types=["project"],
        ),
    ]
