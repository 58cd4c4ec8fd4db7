# SPDX-License-Identifier: Apache-2.0
"""The metadata definitions for Glance are those of the properties that plain servers have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gsaas.objects import plain_server
from gsaas.objects.request import Request

DEFINITIONS = json.loads(
    (Path(__file__).parents[3] / "etc/gsaas/metadefs/gsaas.json").read_text(encoding="utf-8")
)
PROPERTIES: dict[str, Any] = DEFINITIONS["properties"]
MODE, MEMORY = f"{plain_server.PREFIX}mode", plain_server.MEMORY


def test_each_property_of_plain_servers_is_defined_and_no_other():
    assert {plain_server.PREFIX + name for name in PROPERTIES} == plain_server.FIELDS.keys()


def test_flavors_and_metadata_of_servers_have_them_with_their_prefix():
    associations = DEFINITIONS["resource_type_associations"]
    assert {one["name"]: one.get("properties_target") for one in associations} == {
        "OS::Nova::Flavor": None,
        "OS::Nova::Server": "metadata",
    }
    assert {one["prefix"] for one in associations} == {plain_server.PREFIX}


def accepted(properties: dict[str, str]) -> Request:
    """Return the request of a server with these properties; raises `ValueError`."""
    cgpus = plain_server.wanted({}, properties)
    assert cgpus is not None
    return Request.from_dict(cgpus)


def with_needed(name: str, value: str) -> dict[str, str]:
    """Return the property *name* with what it needs beside it."""
    properties = {plain_server.COUNT: "1", name: value}
    if value == "shared":
        properties[MEMORY] = "1024"
    if name == MEMORY:
        properties[MODE] = "shared"
    return properties


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, schema in PROPERTIES.items() for value in schema.get("enum", ())],
)
def test_each_choice_that_is_defined_is_accepted(name: str, value: str):
    accepted(with_needed(plain_server.PREFIX + name, value))


@pytest.mark.parametrize("name", [name for name in PROPERTIES if "enum" in PROPERTIES[name]])
def test_no_other_choice_is(name: str):
    with pytest.raises(ValueError, match="must be one of"):
        accepted(with_needed(plain_server.PREFIX + name, "other"))


@pytest.mark.parametrize(
    "name", [name for name, schema in PROPERTIES.items() if schema["type"] == "integer"]
)
def test_the_least_number_that_is_defined_is_the_least_that_is_accepted(name: str):
    full, least = plain_server.PREFIX + name, PROPERTIES[name]["minimum"]
    accepted(with_needed(full, str(least)))
    with pytest.raises(ValueError, match="whole number"):
        accepted(with_needed(full, str(least - 1)))


@pytest.mark.parametrize("name", [name for name in PROPERTIES if "maxLength" in PROPERTIES[name]])
def test_the_longest_text_that_is_defined_is_the_longest_that_is_accepted(name: str):
    full, longest = plain_server.PREFIX + name, PROPERTIES[name]["maxLength"]
    accepted(with_needed(full, "x" * longest))
    with pytest.raises(ValueError, match=f"1 to {longest}"):
        accepted(with_needed(full, "x" * (longest + 1)))


@pytest.mark.parametrize("name", [name for name in PROPERTIES if "default" in PROPERTIES[name]])
def test_a_default_asks_for_what_its_absence_asks_for(name: str):
    full = plain_server.PREFIX + name
    assert accepted(with_needed(full, str(PROPERTIES[name]["default"]))) == accepted(
        {plain_server.COUNT: "1"}
    )
