# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of every body and query: one module per kind of resource.

A schema with a `title` becomes a named component of the OpenAPI document, and descriptions are documentation for API
users. Schemas of requests are exact (`additionalProperties` is false nearly everywhere) and state every limit, so that
`gsaas.api.validation` can generate error messages from them.
"""

from gsaas.api.schemas import (
    checks,
    common,
    endpoints,
    gpus,
    grants,
    health,
    hosts,
    leases,
    limits,
    models,
    moves,
    policies,
    queue,
    readings,
    reservations,
    servers,
    settings,
    usage,
    vendordata,
    versions,
)

__all__ = [
    "checks",
    "common",
    "endpoints",
    "gpus",
    "grants",
    "health",
    "hosts",
    "leases",
    "limits",
    "models",
    "moves",
    "policies",
    "queue",
    "readings",
    "reservations",
    "servers",
    "settings",
    "usage",
    "vendordata",
    "versions",
]
