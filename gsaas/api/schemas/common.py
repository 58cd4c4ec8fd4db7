# SPDX-License-Identifier: Apache-2.0
"""Parts that the schemas of several resources share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gsaas.api import microversions, times

MAX_INTEGER = 2**31 - 1
"""The largest integer that the database's columns can store."""

NAME_MIN, NAME_MAX = 1, 255
"""The shortest and longest name or identifier, in characters."""
NAME_PATTERN = (
    "^[^\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]*$"
)
"""Text without the characters of Unicode's general categories Cc, Zl and Zp, and those with its property Bidi_Control.

Printed, the former move the cursor or end the line, and the latter show other text than there is. Joiners, which emoji
and several scripts need, are allowed."""

TEXT: dict[str, Any] = {
    "type": "string",
    "minLength": NAME_MIN,
    "maxLength": NAME_MAX,
    "pattern": NAME_PATTERN,
}
"""A name or an identifier: one line without control characters of terminals or of the direction of text."""

TIME = {"type": "string", "format": "date-time"}


def asked_time(description: str, *, in_query: bool = False) -> dict[str, Any]:
    """Return the schema of a time or a date of a request, whose *description* says what it is for."""
    offset = "an offset, whose + is %2B in a URL" if in_query else "an offset"
    return {
        "type": "string",
        "pattern": times.PATTERN,
        "description": f"{description}; in UTC unless it has {offset}; a date means its midnight",
    }


MIB = {"type": "integer", "minimum": 1, "maximum": MAX_INTEGER}

ERRORS = {
    "title": "Errors",
    "type": "object",
    "properties": {
        "errors": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "request_id": {"type": "string"},
                    "code": {
                        "type": "string",
                        "description": "Identifies the kind of error and never changes. Programs should compare this.",
                    },
                    "status": {"type": "integer"},
                    "title": {"type": "string"},
                    "detail": {"type": "string"},
                    "links": {"type": "array", "items": {"type": "object"}},
                    "min_version": {"type": "string"},
                    "max_version": {"type": "string"},
                    "gsaas": {
                        "type": "object",
                        "description": "Why the request does not fit, in a form for programs.",
                    },
                },
                "required": ["request_id", "code", "status", "title", "detail", "links"],
            },
        }
    },
    "required": ["errors"],
}

LINKS = {
    "title": "Links",
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"rel": {"type": "string"}, "href": {"type": "string"}},
        "required": ["rel", "href"],
        "additionalProperties": False,
    },
}

PAGE = {
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_INTEGER,
        "description": "The maximum number of rows to return; the service's own limit may be lower.",
    },
    "marker": {
        **TEXT,
        "description": "Where the page begins, from the link to it; or the identifier of the row before it.",
    },
}


def since(version: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the *schema* of a field that microversion *version* has added."""
    return {**schema, microversions.SINCE: {"min-ver": version}}


def sorting(keys: Iterable[str]) -> dict[str, Any]:
    """Return the query parameters with which a list is sorted by any of *keys*."""
    allowed = list(keys)
    return {
        "sort_key": since(
            microversions.SORTING,
            {
                "type": "array",
                "items": {"enum": allowed},
                "minItems": 1,
                "maxItems": len(allowed),
                "uniqueItems": True,
                "description": "Sort by this field; given several times, each further field orders rows that are "
                "equal in those before. Rows without a value come last.",
            },
        ),
        "sort_dir": since(
            microversions.SORTING,
            {
                "type": "array",
                "items": {"enum": ["asc", "desc"]},
                "minItems": 1,
                "maxItems": len(allowed),
                "description": "The direction of the sort_key at the same place: asc (default) or desc.",
            },
        ),
    }


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that allows null as well."""
    return {"anyOf": [schema, {"type": "null"}]}


def record(
    properties: dict[str, Any], optional: tuple[str, ...] = (), **more: Any
) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties.

    The *optional* ones may be missing, and so may those that not every microversion has (`since`). *more* are further
    keywords of the schema, such as its title.
    """
    return {
        **more,
        "type": "object",
        "properties": properties,
        "required": [
            name
            for name, schema in properties.items()
            if name not in optional and microversions.SINCE not in schema
        ],
        "additionalProperties": False,
    }


def query(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a query string whose parameters are all optional."""
    return record(properties, optional=tuple(properties))


def disabling(noun: str, **more: Any) -> dict[str, Any]:
    """Return the schema of a PATCH that disables or enables a *noun* (`gpu` or `host`); *more* are its other fields."""
    return record(
        {
            noun: record(
                {
                    "disabled": {
                        "type": "boolean",
                        "description": "If true, new leases do not get it; leases that have it keep it.",
                    },
                    "disabled_reason": {
                        **TEXT,
                        "description": "Why it is disabled: a note to other operators.",
                    },
                    **more,
                },
                optional=("disabled_reason",),
            )
        }
    )
