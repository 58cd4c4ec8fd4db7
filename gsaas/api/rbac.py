# SPDX-License-Identifier: Apache-2.0
"""The table of access rules: each with its default, and with the requests that it guards.

Operators override them in oslo.policy's file `policy.yaml`; `oslopolicy-sample-generator --namespace gsaas` prints a
sample of it. In this module "policy" is oslo.policy's word; everywhere else in GSaaS it means a scheduling policy.

The first rules are the personas (Keystone's default roles) that all others refer to. A Keystone token contains the
implied roles as well (admin implies manager, manager implies member, member implies reader). These rules imply them
too, so that an entry of a token file may have `admin` as its only role.
"""

from __future__ import annotations

from oslo_config import cfg
from oslo_policy import policy

_RULES: list[policy.RuleDefault] = []
"""Every rule of this module, in its order."""


def _persona(name: str, check: str, description: str) -> str:
    """Add a rule that others refer to; return the reference."""
    _RULES.append(policy.RuleDefault(name, check, description))
    return f"rule:{name}"


def _rule(name: str, check: str, description: str, *requests: str) -> str:
    """Add a rule that guards *requests*, each a method and a path; return its name."""
    operations: list[policy.Operation] = [
        {"method": method, "path": path} for method, path in (each.split() for each in requests)
    ]
    _RULES.append(
        policy.DocumentedRuleDefault(name, check, description, operations, scope_types=["project"])
    )
    return name


_IN_PROJECT = "project_id:%(project_id)s and not None:%(project_id)s"
"""The caller's project owns the resource. The second half excludes resources without a project: oslo.policy compares
text, so that the "None" of such a resource would equal the "None" of a token without a project."""

ADMIN = _persona("gsaas:admin", "role:admin", "An operator of the cloud.")
# Such as billing: it may see which project each lease belongs to.
SERVICE = _persona("gsaas:service", "role:service", "Another service of the cloud.")
MANAGER = _persona(
    "gsaas:project-manager",
    f"{ADMIN} or (role:manager and {_IN_PROJECT})",
    "A manager of the project that owns the resource.",
)
MEMBER = _persona(
    "gsaas:project-member",
    f"{MANAGER} or (role:member and {_IN_PROJECT})",
    "A member of the project that owns the resource.",
)
READER = _persona(
    "gsaas:project-reader",
    f"{MEMBER} or (role:reader and {_IN_PROJECT})",
    "A reader of the project that owns the resource.",
)
READER_OR_SERVICE = f"{READER} or {SERVICE}"
ADMIN_OR_SERVICE = f"{ADMIN} or {SERVICE}"

LEASES_LIST = _rule(
    "gsaas:leases:list",
    READER_OR_SERVICE,
    "List the leases of the caller's project.",
    "GET /v1/leases",
)
LEASES_LIST_ALL_PROJECTS = _rule(
    "gsaas:leases:list-all-projects",
    ADMIN_OR_SERVICE,
    "List the leases of all projects, including those in the queue, and find any lease by its id.",
    "GET /v1/leases?all_projects=true",
    "GET /v1/leases/{lease_id}",
    "GET /v1/leases/{lease_id}/environment",
    "GET /v1/leases/{lease_id}/readings",
    "POST /v1/leases/{lease_id}/keepalive",
    "POST /v1/leases/{lease_id}/move",
    "PATCH /v1/leases/{lease_id}",
    "DELETE /v1/leases/{lease_id}",
    "GET /v1/queue",
)
LEASES_SHOW = _rule(
    "gsaas:leases:show",
    READER_OR_SERVICE,
    "Show a lease and its events.",
    "GET /v1/leases/{lease_id}",
)
LEASES_SHOW_READINGS = _rule(
    "gsaas:leases:show-readings",
    READER_OR_SERVICE,
    "Show what the cGPUs of a lease did in the last day.",
    "GET /v1/leases/{lease_id}/readings",
)
LEASES_SHOW_PLACEMENT = _rule(
    "gsaas:leases:show-placement",
    ADMIN,
    "See which GPUs, hosts and real addresses a lease has, or which ones a checked request would get, and "
    "why a lease or a reservation is degraded.",
    "GET /v1/leases",
    "GET /v1/leases/{lease_id}",
    "POST /v1/leases",
    "PATCH /v1/leases/{lease_id}",
    "DELETE /v1/leases/{lease_id}",
    "POST /v1/checks",
    "GET /v1/reservations",
    "GET /v1/reservations/{reservation_id}",
)
LEASES_CREATE = _rule(
    "gsaas:leases:create",
    MEMBER,
    "Launch a lease: claim cGPUs, with or without a VM.",
    "POST /v1/leases",
)
LEASES_CREATE_WITHOUT_SERVER = _rule(
    "gsaas:leases:create-without-server",
    MEMBER,
    "Launch a lease without a VM, for a program that runs already. Unless [grants]direct is never, its "
    "owner may be told the real addresses of GPUs.",
    "POST /v1/leases",
)
LEASES_PRIORITISE = _rule(
    "gsaas:leases:prioritise",
    ADMIN,
    "Ask for cGPUs with a priority above 0, to be served before other requests in the queue.",
    "POST /v1/leases",
    "PATCH /v1/leases/{lease_id}",
)
LEASES_ENVIRONMENT = _rule(
    "gsaas:leases:environment",
    MEMBER,
    "Read the environment with which programs find a lease's cGPUs.",
    "GET /v1/leases/{lease_id}/environment",
)
LEASES_KEEP = _rule(
    "gsaas:leases:keep",
    MEMBER,
    "Keep a lease alive that ends when its client stops reporting.",
    "POST /v1/leases/{lease_id}/keepalive",
)
LEASES_UPDATE = _rule(
    "gsaas:leases:update",
    MEMBER,
    "Change the name, the end or the consent to moves of a lease, or its priority in the queue.",
    "PATCH /v1/leases/{lease_id}",
)
LEASES_DELETE = _rule(
    "gsaas:leases:delete",
    MEMBER,
    "Terminate a lease: delete its VM and release its GPUs.",
    "DELETE /v1/leases/{lease_id}",
)
LEASES_MOVE = _rule(
    "gsaas:leases:move",
    ADMIN,
    "Move cGPUs of a lease to other GPUs, and see which these are; with force, its programs' connections are cut.",
    "POST /v1/leases/{lease_id}/move",
)

GRANTS_REDEEM = _rule(
    "gsaas:grants:redeem",
    ADMIN_OR_SERVICE,
    "Redeem a grant that a consumer presented, and see which GPUs it admits to.",
    "POST /v1/grants/redeem",
)

QUEUE_LIST = _rule(
    "gsaas:queue:list",
    READER_OR_SERVICE,
    "See how many requests wait for GPUs, and the places of those of the caller's project.",
    "GET /v1/queue",
)

RESERVATIONS_LIST = _rule(
    "gsaas:reservations:list",
    READER_OR_SERVICE,
    "See the reservations of the caller's project.",
    "GET /v1/reservations",
    "GET /v1/reservations/{reservation_id}",
)
RESERVATIONS_LIST_ALL_PROJECTS = _rule(
    "gsaas:reservations:list-all-projects",
    ADMIN_OR_SERVICE,
    "List the reservations of all projects, and find any by its id.",
    "GET /v1/reservations?all_projects=true",
    "GET /v1/reservations/{reservation_id}",
    "PATCH /v1/reservations/{reservation_id}",
    "DELETE /v1/reservations/{reservation_id}",
)
RESERVATIONS_CREATE = _rule(
    "gsaas:reservations:create",
    MEMBER,
    "Reserve cGPUs for the caller's project.",
    "POST /v1/reservations",
)
RESERVATIONS_UPDATE = _rule(
    "gsaas:reservations:update",
    MEMBER,
    "Change the name of a reservation.",
    "PATCH /v1/reservations/{reservation_id}",
)
RESERVATIONS_DELETE = _rule(
    "gsaas:reservations:delete",
    MEMBER,
    "Cancel a reservation.",
    "DELETE /v1/reservations/{reservation_id}",
)

CHECKS_CREATE = _rule(
    "gsaas:checks:create",
    MEMBER,
    "Ask whether a request for cGPUs would fit now.",
    "POST /v1/checks",
)

GPUS_LIST = _rule(
    "gsaas:gpus:list",
    READER_OR_SERVICE,
    "See how many GPUs and how much GPU memory the cloud has, and how much of it is free. The GPUs "
    "themselves are listed for callers that gsaas:gpus:show allows.",
    "GET /v1/gpus",
)
GPUS_SHOW = _rule(
    "gsaas:gpus:show",
    ADMIN,
    "See each GPU: its host, how much of it is used, and by which leases.",
    "GET /v1/gpus",
    "GET /v1/gpus/{uuid}",
)
GPUS_UPDATE = _rule(
    "gsaas:gpus:update",
    ADMIN,
    "Disable a GPU, so that new leases do not get it, or enable it again.",
    "PATCH /v1/gpus/{uuid}",
)
GPUS_ADOPT = _rule(
    "gsaas:gpus:adopt",
    ADMIN,
    "Consent to the move of a GPU to another host, which reports it.",
    "POST /v1/gpus/{uuid}/adopt",
)

MODELS_LIST = _rule(
    "gsaas:models:list",
    READER_OR_SERVICE,
    "See which models of GPUs the cloud has, and how much of each is free.",
    "GET /v1/models",
)

HOSTS_LIST = _rule(
    "gsaas:hosts:list",
    READER_OR_SERVICE,
    "See how many hosts with GPUs the cloud has. The hosts themselves are listed for callers that "
    "gsaas:hosts:show allows.",
    "GET /v1/hosts",
)
HOSTS_SHOW = _rule(
    "gsaas:hosts:show",
    ADMIN,
    "See each host: its GPUs, its agents, and whether these still report.",
    "GET /v1/hosts",
    "GET /v1/hosts/{name}",
)
HOSTS_UPDATE = _rule(
    "gsaas:hosts:update",
    ADMIN,
    "Disable a host, so that new leases do not get its GPUs, have leases leave it, or enable it again.",
    "PATCH /v1/hosts/{name}",
)
HOSTS_DELETE = _rule(
    "gsaas:hosts:delete",
    ADMIN,
    "Declare a host permanently gone: leases with GPUs of it fail, and its bindings count as removed.",
    "DELETE /v1/hosts/{name}",
)

ENDPOINTS_LIST = _rule(
    "gsaas:endpoints:list",
    ADMIN,
    "List the RODVR endpoints and what they reported last.",
    "GET /v1/endpoints",
)
ENDPOINTS_SHOW = _rule(
    "gsaas:endpoints:show",
    ADMIN,
    "Show the RODVR endpoint of one host.",
    "GET /v1/endpoints/{host}",
)

POLICIES_LIST = _rule(
    "gsaas:policies:list",
    READER_OR_SERVICE,
    "List the scheduling policies that a request may name.",
    "GET /v1/policies",
    "GET /v1/policies/{policy}",
)
POLICIES_UPDATE = _rule(
    "gsaas:policies:update",
    ADMIN,
    "Set the scheduling policy for requests that name none.",
    "PATCH /v1/policies",
)

LIMITS_SHOW = _rule(
    "gsaas:limits:show",
    READER_OR_SERVICE,
    "See the quota of the caller's project, and how much of it is used.",
    "GET /v1/limits",
)

USAGE_SHOW = _rule(
    "gsaas:usage:show",
    READER_OR_SERVICE,
    "See how many GPU-hours the caller's project used in a period.",
    "GET /v1/usage",
)
USAGE_SHOW_ALL_PROJECTS = _rule(
    "gsaas:usage:show-all-projects",
    ADMIN_OR_SERVICE,
    "See how many GPU-hours every project used in a period.",
    "GET /v1/usage",
)

SETTINGS_SHOW = _rule(
    "gsaas:settings:show",
    ADMIN,
    "See the settings that override the configuration.",
    "GET /v1/settings",
)
SETTINGS_UPDATE = _rule(
    "gsaas:settings:update", ADMIN, "Change how often all GPU hosts report.", "PATCH /v1/settings"
)

VENDORDATA_SHOW = _rule(
    "gsaas:vendordata:show",
    ADMIN_OR_SERVICE,
    "Ask for the vendor data of any server, as Nova does, and have cGPUs claimed for it if its properties "
    "ask for some. Tenants must not be allowed this: the answer has the environment of other projects' leases.",
    "POST /v1/vendordata",
)


def list_rules() -> list[policy.RuleDefault]:
    """Return every rule (entry point `oslo.policy.policies`)."""
    return list(_RULES)


def enforcer(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return an enforcer of these rules, with the changes of the operator's file."""
    result = policy.Enforcer(conf)
    result.register_defaults(list_rules())
    return result
