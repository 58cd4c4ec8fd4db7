# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document, generated from the table of routes and from the schemas that requests are validated with."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from gsaas.api import idempotency, microversions
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.api.route import PATH_PARAMETER, Route
from gsaas.api.schemas import common

ERROR_DESCRIPTIONS = {
    400: "The request is invalid; the detail names the field and its allowed values.",
    401: "The request has no token, or the token is not valid.",
    403: "The caller's roles do not allow this.",
    404: "The resource does not exist, or belongs to another project.",
    406: "The service does not support the requested microversion.",
    409: "There are not enough free GPUs, or the state of the resource does not allow the request.",
    411: "The body comes in chunks that cannot be read.",
    413: "The body is too large.",
    415: "The Content-Type of the body is not application/json.",
    500: "An internal error; the service's log has it under the request id.",
    503: "The service cannot process the request now; try again.",
}


def show(request: ApiRequest) -> ApiResponse:
    """Show this document."""
    return ApiResponse(200, request.service.openapi)


@functools.cache
def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of *routes*. The result is cached: callers must not change it."""
    components: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in routes:
        operation = _with_references(_operation(route), components)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "GSaaS",
            "summary": "GPU scheduling as a service",
            "version": microversions.NEWEST,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    noun = route.handler.__module__.rpartition(".")[2]
    operation: dict[str, Any] = {
        "operationId": f"{noun}.{route.handler.__name__}",
        "summary": (inspect.getdoc(route.handler) or "").partition("\n")[0],
        "tags": [noun],
        "parameters": _parameters(route),
        "responses": _responses(route),
        "security": [{"token": []}] if route.rule else [],
    }
    if route.rule:
        operation["x-rbac-rule"] = route.rule
    if route.takes.body is not None:
        content = {"application/json": {"schema": route.takes.body}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": common.TEXT}
        for name in PATH_PARAMETER.findall(route.path)
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in route.takes.query["properties"].items()
    ]
    if route.takes.repeatable:
        parameters.append(
            {
                "name": idempotency.HEADER,
                "in": "header",
                "required": False,
                "schema": {"type": "string", "pattern": f"^{idempotency.KEY}$"},
                "description": "A name that the client has chosen for this request. For a day, a request with the same "
                "key and the same body returns the lease that the first one has made, and makes no other.",
            }
        )
    if route.rule:
        parameters.append(
            {
                "name": microversions.HEADER,
                "in": "header",
                "required": route.since != microversions.OLDEST,
                "schema": {
                    "enum": [
                        f"{microversions.SERVICE} {version}"
                        for version in (*microversions.versions_since(route.since), "latest")
                    ]
                },
            }
        )
    return parameters


def _responses(route: Route) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if route.returns.schema is not None:
        content["application/json"] = {"schema": route.returns.schema}
    if route.returns.text:
        content["text/plain"] = {"schema": {"type": "string"}}
    success = {"description": "The request succeeded.", "content": content}
    error = {"application/json": {"schema": common.ERRORS}}
    return {str(status): success for status in route.returns.statuses} | {
        str(status): {"description": ERROR_DESCRIPTIONS[status], "content": error}
        for status in sorted(route.error_statuses())
    }


def _with_references(value: Any, components: dict[str, Any]) -> Any:
    """Return *value* with a reference in place of every schema that has a title, and each new field described as new.

    The schemas with a title are added to *components*, by title.
    """
    if isinstance(value, list | tuple):
        return [_with_references(item, components) for item in value]
    if not isinstance(value, Mapping):
        return value
    inner = {key: _with_references(item, components) for key, item in value.items()}
    if microversions.SINCE in inner:
        note = f"New in microversion {microversions.since_of(inner)}."
        inner["description"] = f"{inner.get('description', '')} {note}".strip()
    title = inner.get("title")
    if not isinstance(title, str):
        return inner
    components[title] = inner
    return {"$ref": f"#/components/schemas/{title}"}
