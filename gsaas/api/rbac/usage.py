# SPDX-License-Identifier: Apache-2.0
"""Access rules of usage."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

SHOW = "gsaas:usage:show"
SHOW_ALL_PROJECTS = "gsaas:usage:show-all-projects"


def rules() -> list[policy.DocumentedRuleDefault]:
    """Return these rules with the requests that they guard."""
    return [
        policy.DocumentedRuleDefault(
            SHOW,
            base.READER_OR_SERVICE,
            "See how many GPU-hours the caller's project used in a period.",
            [{"method": "GET", "path": "/v1/usage"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            SHOW_ALL_PROJECTS,
            base.ADMIN_OR_SERVICE,
            "See how many GPU-hours every project used in a period.",
            [{"method": "GET", "path": "/v1/usage"}],
            scope_types=["project"],
        ),
    ]
