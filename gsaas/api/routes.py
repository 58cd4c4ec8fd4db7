"""Every URL, method, handler, access rule and schema of the API, in one table.

Flask's routes and the OpenAPI document are both made from it (`app`, `openapi`), so neither can know
something that the other does not. A route without a rule is open: it needs no token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gsaas.api import (
    checks,
    endpoints,
    gpus,
    grants,
    health,
    hosts,
    leases,
    limits,
    metrics,
    openapi,
    policies,
    queue,
    rbac,
    schemas,
    settings,
    usage,
    versions,
)
from gsaas.api.service import Reply
from gsaas.api.validation import Schema


@dataclass(frozen=True, eq=False)
class Route:
    """One method of one URL. `{words}` in the path are arguments of the handler."""

    method: str
    path: str
    handler: Callable[..., Reply]
    rule: str | None
    status: int
    """Of the reply when all goes well."""
    reply: Mapping[str, Any] | None
    """Schema; None for a reply that is always text."""
    query: Mapping[str, Any] = field(default_factory=lambda: schemas.common.query({}))
    body: Mapping[str, Any] | None = None
    refusals: tuple[int, ...] = ()
    """Statuses that do not follow from the rest, as those in `openapi.refusals` do."""
    others: tuple[int, ...] = ()
    """Further statuses of the same reply when all goes well."""
    text: bool = False
    """The reply may be text instead."""

    @cached_property
    def query_schema(self) -> Schema:
        return Schema(self.query)

    @cached_property
    def body_schema(self) -> Schema | None:
        return None if self.body is None else Schema(self.body)


ROUTES = (
    Route("GET", "/", versions.index, None, 300, schemas.versions.MANY),
    Route("GET", "/v1", versions.show, None, 200, schemas.versions.ONE),
    Route("GET", "/v1/openapi.json", openapi.show, None, 200, {"type": "object"}),
    Route("GET", "/healthcheck", health.show, None, 200, schemas.health.HEALTHY, refusals=(503,)),
    Route("GET", "/metrics", metrics.show, None, 200, None, text=True),
    Route(
        "POST",
        "/v1/leases",
        leases.create,
        rbac.leases.CREATE,
        202,
        schemas.leases.CREATED,
        query=schemas.leases.CREATE_QUERY,
        body=schemas.leases.CREATE,
        refusals=(409, 503),
        others=(201,),
    ),
    Route(
        "GET",
        "/v1/leases",
        leases.index,
        rbac.leases.LIST,
        200,
        schemas.leases.MANY,
        query=schemas.leases.LIST,
    ),
    Route(
        "GET",
        "/v1/leases/{lease_id}",
        leases.show,
        rbac.leases.SHOW,
        200,
        schemas.leases.SHOWN,
        query=schemas.leases.SHOW_QUERY,
    ),
    Route(
        "GET",
        "/v1/leases/{lease_id}/environment",
        leases.environment,
        rbac.leases.ENVIRONMENT,
        200,
        schemas.leases.ENVIRONMENT,
        query=schemas.leases.ENVIRONMENT_QUERY,
        refusals=(409,),
        text=True,
    ),
    Route(
        "DELETE",
        "/v1/leases/{lease_id}",
        leases.delete,
        rbac.leases.DELETE,
        202,
        schemas.leases.ONE,
    ),
    Route(
        "GET",
        "/v1/queue",
        queue.index,
        rbac.queue.LIST,
        200,
        schemas.queue.MANY,
        query=schemas.queue.LIST,
    ),
    Route(
        "POST",
        "/v1/leases/{lease_id}/keepalive",
        leases.keepalive,
        rbac.leases.KEEP,
        200,
        schemas.leases.KEPT,
    ),
    Route(
        "POST",
        "/v1/grants/redeem",
        grants.redeem,
        rbac.grants.REDEEM,
        200,
        schemas.grants.REDEEMED,
        body=schemas.grants.REDEEM,
    ),
    Route(
        "POST",
        "/v1/checks",
        checks.create,
        rbac.checks.CREATE,
        200,
        schemas.checks.CHECKED,
        body=schemas.checks.CREATE,
    ),
    Route(
        "GET",
        "/v1/gpus",
        gpus.index,
        rbac.gpus.LIST,
        200,
        schemas.gpus.MANY,
        query=schemas.gpus.LIST,
    ),
    Route("GET", "/v1/gpus/{uuid}", gpus.show, rbac.gpus.SHOW, 200, schemas.gpus.ONE),
    Route(
        "PATCH",
        "/v1/gpus/{uuid}",
        gpus.update,
        rbac.gpus.UPDATE,
        200,
        schemas.gpus.ONE,
        body=schemas.gpus.UPDATE,
    ),
    Route(
        "GET",
        "/v1/hosts",
        hosts.index,
        rbac.hosts.LIST,
        200,
        schemas.hosts.MANY,
        query=schemas.hosts.LIST,
    ),
    Route("GET", "/v1/hosts/{name}", hosts.show, rbac.hosts.SHOW, 200, schemas.hosts.ONE),
    Route(
        "PATCH",
        "/v1/hosts/{name}",
        hosts.update,
        rbac.hosts.UPDATE,
        200,
        schemas.hosts.ONE,
        body=schemas.hosts.UPDATE,
    ),
    Route(
        "DELETE",
        "/v1/hosts/{name}",
        hosts.delete,
        rbac.hosts.DELETE,
        202,
        schemas.hosts.FORGOTTEN,
        query=schemas.hosts.DELETE,
        refusals=(409,),
    ),
    Route(
        "GET",
        "/v1/endpoints",
        endpoints.index,
        rbac.endpoints.LIST,
        200,
        schemas.endpoints.MANY,
        query=schemas.endpoints.LIST,
    ),
    Route(
        "GET",
        "/v1/endpoints/{host}",
        endpoints.show,
        rbac.endpoints.SHOW,
        200,
        schemas.endpoints.ONE,
    ),
    Route(
        "GET",
        "/v1/policies",
        policies.index,
        rbac.policies.LIST,
        200,
        schemas.policies.MANY,
    ),
    Route(
        "GET",
        "/v1/settings",
        settings.show,
        rbac.settings.SHOW,
        200,
        schemas.settings.ONE,
    ),
    Route(
        "PATCH",
        "/v1/settings",
        settings.update,
        rbac.settings.UPDATE,
        200,
        schemas.settings.ONE,
        body=schemas.settings.UPDATE,
    ),
    Route(
        "PATCH",
        "/v1/policies",
        policies.update,
        rbac.policies.UPDATE,
        200,
        schemas.policies.ONE,
        body=schemas.policies.UPDATE,
    ),
    Route(
        "GET", "/v1/policies/{policy}", policies.show, rbac.policies.LIST, 200, schemas.policies.ONE
    ),
    Route("GET", "/v1/limits", limits.show, rbac.limits.SHOW, 200, schemas.limits.SHOWN),
    Route(
        "GET",
        "/v1/usage",
        usage.show,
        rbac.usage.SHOW,
        200,
        schemas.usage.SHOWN,
        query=schemas.usage.SHOW,
    ),
)
