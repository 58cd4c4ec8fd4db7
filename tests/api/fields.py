# SPDX-License-Identifier: Apache-2.0
"""Every field of every route, as the schemas declare it: read by a walk that shares nothing with the product's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gsaas.api.microversions import HISTORY, format_version
from gsaas.api.route import Route
from gsaas.api.routes import ROUTES

VERSIONS = [format_version(version) for version in HISTORY]
BODY, QUERY, ANSWER = "body", "query", "answer"


@dataclass(frozen=True)
class Field:
    """A field of what a route takes or answers; *path* has "[]" for the items of a list."""

    route: Route
    place: str
    path: tuple[str, ...]
    schema: Any
    since: str

    def __str__(self) -> str:
        return f"{self.route.method} {self.route.path} {self.place} {'.'.join(self.path)}"


def called(path: tuple[str, ...]) -> str:
    """Return how error messages call the first field at *path*."""
    return ".".join(path).replace(".[]", "[0]")


def has(version: str, since: str) -> bool:
    """Return whether *version* is *since* or came later."""
    return VERSIONS.index(version) >= VERSIONS.index(since)


def fields(place: str) -> list[Field]:
    """Return every field in that *place* of all routes."""
    return [
        Field(route, place, path, schema, since)
        for route in ROUTES
        for path, schema, since in walk(_schema(route, place), route.since)
    ]


def _schema(route: Route, place: str) -> Any:
    schemas = {BODY: route.takes.body, QUERY: route.takes.query, ANSWER: route.returns.schema}
    return schemas[place] or {}


def walk(schema: Any, since: str) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Yield path, schema and first microversion of each field; a field is no older than what it is in."""
    for name, field in schema.get("properties", {}).items():
        own = field.get("x-openstack", {}).get("min-ver", "1.0")
        latest = max(since, own, key=VERSIONS.index)
        yield (name,), field, latest
        for path, inner, newest in walk(field, latest):
            yield (name, *path), inner, newest
    for branch in schema.get("anyOf", ()):
        yield from walk(branch, since)
    if "items" in schema:
        for path, inner, newest in walk(schema["items"], since):
            yield ("[]", *path), inner, newest


def at(schema: Any, version: str) -> Any:
    """Return *schema* without the fields that are newer than *version*."""
    if isinstance(schema, list | tuple):
        return [at(each, version) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = {name: at(each, version) for name, each in schema.items()}
    if isinstance(properties := schema.get("properties"), Mapping):
        inner["properties"] = {
            name: at(field, version)
            for name, field in properties.items()
            if has(version, field.get("x-openstack", {}).get("min-ver", "1.0"))
        }
    return inner


def example(schema: Any) -> Any:
    """Return a value of *schema* that has every field."""
    if "anyOf" in schema:
        return example(schema["anyOf"][0])
    if "enum" in schema:
        return schema["enum"][0]
    if "properties" in schema:
        return {name: example(field) for name, field in schema["properties"].items()}
    kind = schema.get("type", "string")
    kind = kind if isinstance(kind, str) else kind[0]
    if kind == "array":
        return [example(schema["items"])]
    return {"integer": schema.get("minimum", 1), "number": 1.0, "boolean": True, "object": {}}.get(
        kind, "x"
    )


def with_only(path: tuple[str, ...], value: Any) -> Any:
    """Return a value that has nothing but the field at *path*."""
    for step in reversed(path):
        value = [value] if step == "[]" else {step: value}
    return value


def paths(value: Any) -> set[tuple[str, ...]]:
    """Return the path of every field that *value* has."""
    if isinstance(value, Mapping):
        inner = {(name, *path) for name, each in value.items() for path in paths(each)}
        return {(name,) for name in value} | inner
    if isinstance(value, list):
        return {("[]", *path) for each in value for path in paths(each)}
    return set()
