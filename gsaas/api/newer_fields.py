# SPDX-License-Identifier: Apache-2.0
"""Leaves out of an answer the fields that are newer than the request's microversion, as their schemas say (pure).

    prune = pruner(schema, "1.0")
    prune(body)     # the body without what 1.1 and later microversions have added

Handlers always answer as the newest microversion does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gsaas.api import microversions

Prune = Callable[[Any], Any]
"""Returns a value without its newer fields; the given value stays as it is."""


def pruner(schema: Mapping[str, Any], version: str) -> Prune | None:
    """Return what prunes values of *schema* for microversion *version*; None if they have no newer fields."""
    found = [prune for prune in (_of_object(schema, version), _of_list(schema, version)) if prune]
    found += [prune for branch in schema.get("anyOf", ()) if (prune := pruner(branch, version))]
    return _all(found) if found else None


def _of_object(schema: Mapping[str, Any], version: str) -> Prune | None:
    newer, changed = set(), {}
    for name, field in schema.get("properties", {}).items():
        if not microversions.supports(version, microversions.since_of(field)):
            newer.add(name)
        elif prune := pruner(field, version):
            changed[name] = prune
    if not newer and not changed:
        return None

    def prune_object(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {
            name: changed[name](inner) if name in changed else inner
            for name, inner in value.items()
            if name not in newer
        }

    return prune_object


def _of_list(schema: Mapping[str, Any], version: str) -> Prune | None:
    prune = pruner(schema["items"], version) if "items" in schema else None
    if prune is None:
        return None
    return lambda value: [prune(item) for item in value] if isinstance(value, list) else value


def _all(prunes: list[Prune]) -> Prune:
    def prune_all(value: Any) -> Any:
        for prune in prunes:
            value = prune(value)
        return value

    return prune_all
