# SPDX-License-Identifier: Apache-2.0
"""Requests of any form: whatever an authorised caller sends, the answer is no internal error.

Bodies and queries are drawn along the schemas of their routes, with values in them that schemas forget.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gsaas.api.routes import ROUTES
from tests.api.world import World

CALLERS = ("admin", "member", "stranger")
ODD = [
    *("", " ", "\0", "a\0b", "\ud800", "\udfff\ud800", "\u202e", "\x1b[2J", "é" * 255, "a" * 300),
    *("../..", "%00", "%", "null", "NaN", "-0", "1e309", "0x10", "\u0661", "2026-13-45T99:99:99Z"),
    *("1.2.3.4.5", "::1", "0.0.0.0", "010.0.0.1", "{}", "' OR 1=1 --", "GPU-a", "lease"),
    *(True, False, None, 0, -1, 1, 2**31 - 1, 2**31, 2**63, -(2**63) - 1, 2**70, 10**300),
    *(0.0, -0.0, 0.5, 1.0, 1e308, -1e308, 5e-324),
    *([], {}, [[]], [None], {"": None}, {"\0": "\0"}, {"a": {"a": {"a": []}}}),
]
PROFILE = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    made = World.build(tmp_path_factory.mktemp("world"))
    made.launch()
    made.engine.settle()
    yield made
    made.database.close()


def along(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Draw values of a JSON schema, many of which are not valid."""
    return st.one_of(_like(schema), _like(schema), _like(schema), st.sampled_from(ODD))


def _like(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return st.one_of([along(each) for each in schema[key]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    types = schema.get("type", "string")
    if isinstance(types, list):
        return st.one_of([_like({**schema, "type": each}) for each in types])
    match types:
        case "object":
            known = {name: along(each) for name, each in schema.get("properties", {}).items()}
            required = {
                name: known.pop(name) for name in schema.get("required", []) if name in known
            }
            return st.fixed_dictionaries(required, optional=known)
        case "array":
            return st.lists(along(schema.get("items", {})), max_size=4)
        case "integer":
            low, high = schema.get("minimum", -9), schema.get("maximum", 2**31 - 1)
            return st.sampled_from([low, low + 1, high]) | st.integers(low, low + 9)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case _:
            return st.text(max_size=20)


NAMES = st.sampled_from(
    [
        *("LEASE", "GPU-0001-0", "gpu1", "compute1", "first-fit", "0", "x" * 300),
        *("%00", "%ff", "%ed%a0%80", "%F0%9F%92%A9", "a%0Ab", "%2e%2e", "%E2%80%AE", "%5Cud800"),
    ]
)
"""What the path of a route names, as it is written in URLs; LEASE is one that exists."""


def path_of(world: World, route: Any, name: str) -> str:
    lease = min(row[0] for row in world.rows()["leases"])
    return re.sub(r"\{\w+\}", lambda _: name.replace("LEASE", lease), route.path)


WITH_BODIES = [route for route in ROUTES if route.takes.body_schema is not None]
READING = [route for route in ROUTES if route.method == "GET" and route.rule]


def check(answer: Any) -> None:
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json["errors"][0]["detail"]


@pytest.mark.parametrize("route", WITH_BODIES, ids=lambda route: f"{route.method} {route.path}")
@PROFILE
@given(data=st.data())
def test_no_body_is_an_internal_error(world, route, data):
    body = data.draw(along(route.takes.body_schema.schema))
    path = path_of(world, route, data.draw(NAMES))
    caller = data.draw(st.sampled_from(CALLERS))
    check(world.call(caller, route.method, path, body))


@pytest.mark.parametrize("route", READING, ids=lambda route: f"{route.method} {route.path}")
@PROFILE
@given(data=st.data())
def test_no_query_and_no_header_is_an_internal_error(world, route, data):
    drawn = data.draw(
        along(route.takes.query_schema.schema).filter(lambda query: isinstance(query, dict))
    )
    query = {name: value for name, value in drawn.items() if name != "timeout"}
    path = path_of(world, route, data.draw(NAMES))
    headers = data.draw(
        st.dictionaries(
            st.sampled_from(["OpenStack-API-Version", "Accept", "X-Forwarded-For", "Range"]),
            st.text(st.characters(max_codepoint=255, exclude_categories=["Cc"]), max_size=40),
            max_size=2,
        )
    )
    # No URL has half of a surrogate pair.
    encodable = {key: value for key, value in query.items() if "\\ud" not in ascii(value)}
    caller = data.draw(st.sampled_from(CALLERS))
    check(world.call(caller, "GET", path, query_string=encodable, headers=headers))
