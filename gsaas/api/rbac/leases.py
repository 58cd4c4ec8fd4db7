# SPDX-License-Identifier: Apache-2.0
"""Access rules of leases."""

from __future__ import annotations

from oslo_policy import policy

from gsaas.api.rbac import base

LIST = "gsaas:leases:list"
LIST_ALL_PROJECTS = "gsaas:leases:list-all-projects"
SHOW = "gsaas:leases:show"
SHOW_PLACEMENT = "gsaas:leases:show-placement"
CREATE = "gsaas:leases:create"
CREATE_WITHOUT_SERVER = "gsaas:leases:create-without-server"
SHOW_READINGS = "gsaas:leases:show-readings"
ENVIRONMENT = "gsaas:leases:environment"
UPDATE = "gsaas:leases:update"
DELETE = "gsaas:leases:delete"
KEEP = "gsaas:leases:keep"
PRIORITISE = "gsaas:leases:prioritise"

COLLECTION = "/v1/leases"
ITEM = "/v1/leases/{lease_id}"


def rules() -> list[policy.DocumentedRuleDefault]:
    """Return these rules with the requests that they guard."""
    return [
        policy.DocumentedRuleDefault(
            LIST,
            base.READER_OR_SERVICE,
            "List the leases of the caller's project.",
            [{"method": "GET", "path": COLLECTION}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            LIST_ALL_PROJECTS,
            base.ADMIN_OR_SERVICE,
            "List the leases of all projects, including those in the queue, and find any lease by its id.",
            [
                {"method": "GET", "path": f"{COLLECTION}?all_projects=true"},
                {"method": "GET", "path": ITEM},
                {"method": "GET", "path": f"{ITEM}/environment"},
                {"method": "GET", "path": f"{ITEM}/readings"},
                {"method": "POST", "path": f"{ITEM}/keepalive"},
                {"method": "PATCH", "path": ITEM},
                {"method": "DELETE", "path": ITEM},
                {"method": "GET", "path": "/v1/queue"},
            ],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            SHOW,
            base.READER_OR_SERVICE,
            "Show a lease and its events.",
            [{"method": "GET", "path": ITEM}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            SHOW_READINGS,
            base.READER_OR_SERVICE,
            "Show what the cGPUs of a lease did in the last day.",
            [{"method": "GET", "path": f"{ITEM}/readings"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            SHOW_PLACEMENT,
            base.ADMIN,
            "See which GPUs, hosts and real addresses a lease has, or which ones a checked request "
            "would get, and why a lease or a reservation is degraded.",
            [
                {"method": "GET", "path": COLLECTION},
                {"method": "GET", "path": ITEM},
                {"method": "POST", "path": COLLECTION},
                {"method": "PATCH", "path": ITEM},
                {"method": "DELETE", "path": ITEM},
                {"method": "POST", "path": "/v1/checks"},
                {"method": "GET", "path": "/v1/reservations"},
                {"method": "GET", "path": "/v1/reservations/{reservation_id}"},
            ],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            CREATE,
            base.MEMBER,
            "Launch a lease: claim cGPUs, with or without a VM.",
            [{"method": "POST", "path": COLLECTION}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            CREATE_WITHOUT_SERVER,
            base.MEMBER,
            "Launch a lease without a VM, for a program that runs already. Unless [grants]direct is never, its owner "
            "may be told the real addresses of GPUs.",
            [{"method": "POST", "path": COLLECTION}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            PRIORITISE,
            base.ADMIN,
            "Ask for cGPUs with a priority above 0, to be served before other requests in the queue.",
            [
                {"method": "POST", "path": COLLECTION},
                {"method": "PATCH", "path": ITEM},
            ],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            ENVIRONMENT,
            base.MEMBER,
            "Read the environment with which programs find a lease's cGPUs.",
            [{"method": "GET", "path": f"{ITEM}/environment"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            KEEP,
            base.MEMBER,
            "Keep a lease alive that ends when its client stops reporting.",
            [{"method": "POST", "path": f"{ITEM}/keepalive"}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            UPDATE,
            base.MEMBER,
            "Change the name of a lease, or its priority in the queue.",
            [{"method": "PATCH", "path": ITEM}],
            scope_types=["project"],
        ),
        policy.DocumentedRuleDefault(
            DELETE,
            base.MEMBER,
            "Terminate a lease: delete its VM and release its GPUs.",
            [{"method": "DELETE", "path": ITEM}],
            scope_types=["project"],
        ),
    ]
