"""Who may see hosts, take them out of service, and declare them gone."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

LIST = "gsaas:hosts:list"
SHOW = "gsaas:hosts:show"
UPDATE = "gsaas:hosts:update"
DELETE = "gsaas:hosts:delete"


def rules() -> list[policy.DocumentedRuleDefault]:
    return [
        policy.DocumentedRuleDefault(
            LIST,
            base.READER_OR_SERVICE,
            "See how many hosts with GPUs the cloud has. The hosts themselves are listed for those "
            "who may gsaas:hosts:show.",
            [{"method": "GET", "path": "/v1/hosts"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            SHOW,
            base.ADMIN,
            "See hosts one by one: their GPUs, their agents, and whether those are silent.",
            [
                {"method": "GET", "path": "/v1/hosts"},
                {"method": "GET", "path": "/v1/hosts/{name}"},
            ],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            UPDATE,
            base.ADMIN,
            "Disable a host, so that no new lease gets its GPUs, or enable it again.",
            [{"method": "PATCH", "path": "/v1/hosts/{name}"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            DELETE,
            base.ADMIN,
            "Declare a host gone for good: leases that hold its GPUs fail, and bindings that it held count as removed.",
            [{"method": "DELETE", "path": "/v1/hosts/{name}"}],
            scope_types=["project"],
        ),
    ]
