"""JSON schemas of every body and query: one module per noun.

A `title` makes a schema a named component of the OpenAPI document. What a caller may send is exact
(`additionalProperties` is false nearly everywhere), and each limit is stated where the value is, so
that the message of a refusal can be made from the schema.
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
    policies,
    queue,
    settings,
    usage,
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
    "policies",
    "queue",
    "settings",
    "usage",
    "versions",
]
