# SPDX-License-Identifier: Apache-2.0
"""Access rules of reservations."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

LIST = "gsaas:reservations:list"
LIST_ALL_PROJECTS = "gsaas:reservations:list-all-projects"
CREATE = "gsaas:reservations:create"
DELETE = "gsaas:reservations:delete"

COLLECTION = "/v1/reservations"
ITEM = "/v1/reservations/{reservation_id}"


def rules() -> list[policy.DocumentedRuleDefault]:
    """Return these rules with the requests that they guard."""
    return [
        policy.DocumentedRuleDefault(
            LIST,
            base.READER_OR_SERVICE,
            "See the reservations of the caller's project.",
            [{"method": "GET", "path": COLLECTION}, {"method": "GET", "path": ITEM}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            LIST_ALL_PROJECTS,
            base.ADMIN_OR_SERVICE,
            "List the reservations of all projects, and find any by its id.",
            [
                {"method": "GET", "path": f"{COLLECTION}?all_projects=true"},
                {"method": "GET", "path": ITEM},
                {"method": "DELETE", "path": ITEM},
            ],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            CREATE,
            base.MEMBER,
            "Reserve cGPUs for the caller's project.",
            [{"method": "POST", "path": COLLECTION}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            DELETE,
            base.MEMBER,
            "Cancel a reservation.",
            [{"method": "DELETE", "path": ITEM}],
            scope_types=["project"],
        ),
    ]
