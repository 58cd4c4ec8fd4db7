# SPDX-License-Identifier: Apache-2.0
"""Access rules of GPUs."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

LIST = "gsaas:gpus:list"
SHOW = "gsaas:gpus:show"
UPDATE = "gsaas:gpus:update"
ADOPT = "gsaas:gpus:adopt"


def rules() -> list[policy.DocumentedRuleDefault]:
    """Return these rules with the requests that they guard."""
    return [
        policy.DocumentedRuleDefault(
            LIST,
            base.READER_OR_SERVICE,
            "See how many GPUs and how much GPU memory the cloud has, and how much of it is free. The "
            "GPUs themselves are listed for callers that gsaas:gpus:show allows.",
            [{"method": "GET", "path": "/v1/gpus"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            SHOW,
            base.ADMIN,
            "See each GPU: its host, how much of it is used, and by which leases.",
            [
                {"method": "GET", "path": "/v1/gpus"},
                {"method": "GET", "path": "/v1/gpus/{uuid}"},
            ],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            UPDATE,
            base.ADMIN,
            "Disable a GPU, so that new leases do not get it, or enable it again.",
            [{"method": "PATCH", "path": "/v1/gpus/{uuid}"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            ADOPT,
            base.ADMIN,
            "Consent to the move of a GPU to another host, which reports it.",
            [{"method": "POST", "path": "/v1/gpus/{uuid}/adopt"}],
            scope_types=["project"],
        ),
    ]
