"""Who may see GPUs, and take them out of service."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

LIST = "gsaas:gpus:list"
SHOW = "gsaas:gpus:show"
UPDATE = "gsaas:gpus:update"


def rules() -> list[policy.DocumentedRuleDefault]:
    return [
        policy.DocumentedRuleDefault(
            LIST,
            base.READER_OR_SERVICE,
            "See how many GPUs and how much GPU memory the cloud has and has free. The GPUs "
            "themselves are listed for those who may gsaas:gpus:show.",
            [{"method": "GET", "path": "/v1/gpus"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            SHOW,
            base.ADMIN,
            "See GPUs one by one: where they are, what of them is used, and by which leases.",
            [
                {"method": "GET", "path": "/v1/gpus"},
                {"method": "GET", "path": "/v1/gpus/{uuid}"},
            ],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            UPDATE,
            base.ADMIN,
            "Disable a GPU, so that no new lease gets it, or enable it again.",
            [{"method": "PATCH", "path": "/v1/gpus/{uuid}"}],
            scope_types=["project"],
        ),
    ]
