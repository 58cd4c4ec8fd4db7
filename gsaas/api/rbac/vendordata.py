# SPDX-License-Identifier: Apache-2.0
"""The access rule of vendor data."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

SHOW = "gsaas:vendordata:show"


def rules() -> list[policy.DocumentedRuleDefault]:
    """Return the rule with the request that it guards."""
    return [
        policy.DocumentedRuleDefault(
            SHOW,
            base.ADMIN_OR_SERVICE,
            "Ask for the vendor data of any server, as Nova does, and have cGPUs claimed for it if its properties ask "
            "for some. No tenant may: the answer has the environment of other projects' leases.",
            [{"method": "POST", "path": "/v1/vendordata"}],
            scope_types=["project"],
        )
    ]
