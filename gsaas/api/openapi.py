"""The OpenAPI document, made from the table of routes and the schemas that guard them."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping
from typing import Any

from gsaas.api import microversions
from gsaas.api.route import Route
from gsaas.api.schemas import common
from gsaas.api.service import Call, Reply

NAMES = re.compile(r"{(\w+)}")

DESCRIPTIONS = {
    400: "Something in the request is wrong; the detail says which field, and what it may be.",
    401: "There is no token, or it is not valid.",
    403: "The caller's roles do not allow this.",
    404: "There is no such thing, or it is another project's.",
    406: "The microversion asked for is not spoken here.",
    409: "It cannot be done now: it does not fit, or what it is about is not in a state for it.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    500: "A bug; the request id leads to it in the service's log.",
    503: "Not now; try again.",
}


def show(call: Call) -> Reply:
    """Show this document."""
    return Reply(200, call.service.openapi)


@functools.cache
def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of *routes*; it is not to be changed."""
    components: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in routes:
        operation = _hoisted(_operation(route), components)
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
    noun = inspect.getmodule(route.handler).__name__.rpartition(".")[2]
    operation: dict[str, Any] = {
        "operationId": f"{noun}.{route.handler.__name__}",
        "summary": inspect.getdoc(route.handler).partition("\n")[0],
        "tags": [noun],
        "parameters": _parameters(route),
        "responses": _responses(route),
        "security": [{"token": []}] if route.rule else [],
    }
    if route.rule:
        operation["x-rbac-rule"] = route.rule
    if route.body is not None:
        content = {"application/json": {"schema": route.body}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    found = [
        {"name": name, "in": "path", "required": True, "schema": common.TEXT}
        for name in NAMES.findall(route.path)
    ]
    found += [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in route.query["properties"].items()
    ]
    if route.rule:
        found.append(
            {
                "name": microversions.HEADER,
                "in": "header",
                "required": False,
                "schema": {
                    "enum": [
                        f"{microversions.SERVICE} {version}"
                        for version in (*map(microversions.text, microversions.HISTORY), "latest")
                    ]
                },
            }
        )
    return found


def _responses(route: Route) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if route.reply is not None:
        content["application/json"] = {"schema": route.reply}
    if route.text:
        content["text/plain"] = {"schema": {"type": "string"}}
    good = {"description": "As asked.", "content": content}
    bad = {"application/json": {"schema": common.ERRORS}}
    return {str(status): good for status in (route.status, *route.others)} | {
        str(status): {"description": DESCRIPTIONS[status], "content": bad}
        for status in sorted(refusals(route))
    }


def refusals(route: Route) -> set[int]:
    """Return every status but the good ones that *route* may answer with."""
    statuses = {400, 500, 503, *route.refusals}
    if route.rule:
        statuses |= {401, 403, 406}
    if NAMES.search(route.path):
        statuses |= {404}
    if route.body is not None:
        statuses |= {413, 415}
    return statuses


def _hoisted(value: Any, components: dict[str, Any]) -> Any:
    """Replace each schema that has a title by a reference to it among *components*."""
    if isinstance(value, list | tuple):
        return [_hoisted(item, components) for item in value]
    if not isinstance(value, Mapping):
        return value
    inner = {key: _hoisted(item, components) for key, item in value.items()}
    title = inner.get("title")
    if not isinstance(title, str):
        return inner
    components[title] = inner
    return {"$ref": f"#/components/schemas/{title}"}
