"""Who may see what projects held."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

SHOW = "gsaas:usage:show"
SHOW_ALL_PROJECTS = "gsaas:usage:show-all-projects"


def rules() -> list[policy.DocumentedRuleDefault]:
    return [
        policy.DocumentedRuleDefault(
            SHOW,
            base.READER_OR_SERVICE,
            "See how many GPU-hours the caller's project had over a period.",
            [{"method": "GET", "path": "/v1/usage"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            SHOW_ALL_PROJECTS,
            base.ADMIN_OR_SERVICE,
            "See how many GPU-hours every project had over a period.",
            [{"method": "GET", "path": "/v1/usage"}],
            scope_types=["project"],
        ),
    ]
