# SPDX-License-Identifier: Apache-2.0
"""A field of a lease is written down once in each layer, and in no more files than CONTRIBUTING.md names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gsaas.api.schemas import leases as api
from gsaasclient import lease_fields

ROOT = Path(__file__).parents[2]
PRODUCT = ("client", "dashboard", "gsaas", "heat", "launcher", "tempest")
MOST = 8
DECIDING = {"gsaas/engine/idle.py"}
"""What decides when a lease is reclaimed, rather than shows it."""


def naming(field: str) -> set[str]:
    """Return every file of the product that names *field*."""
    return {
        str(path.relative_to(ROOT))
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".c", ".html", ".js")
        and "build" not in path.parts
        and re.search(rf"\b{field}\b", path.read_text(encoding="utf-8"))
    }


def test_a_field_touches_the_files_that_contributing_names_and_no_other():
    (row,) = [
        line
        for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| a field of a lease")
    ]
    named = set(re.findall(r"`([\w/]+\.py)`", row.split("|")[2]))
    found = naming("reclaim_at") - DECIDING
    migrations = {path for path in found if path.startswith("gsaas/db/migrations/")}
    assert len(migrations) == 1
    assert found - migrations == named
    assert len(found) <= MOST


@pytest.mark.parametrize("field", lease_fields.FIELDS, ids=lambda field: field.name)
def test_what_clients_know_of_a_field_is_what_the_api_says(field: lease_fields.Field):
    """The member of the answer that it is, or is in, and its first microversion."""
    schema, since = api.LEASE_WITH_EVENTS, "1.0"
    for member in field.path:
        schema = schema.get("anyOf", [schema])[0]["properties"][member]
        since = schema.get("x-openstack", {}).get("min-ver", since)
    assert since == field.since


def test_clients_know_every_field_of_a_lease():
    known = {field.path[0] for field in lease_fields.FIELDS} | {*lease_fields.OBJECTS}
    assert {*api.LEASE_WITH_EVENTS["properties"]} - known == {"links"}


@pytest.mark.parametrize(
    "view", ["GSAAS", "OPENSTACK_LIST", "OPENSTACK_ENDED", "OPENSTACK_LONG", "OPENSTACK_SHOW"]
)
def test_each_view_names_fields_that_there_are(view):
    names = getattr(lease_fields, view)
    assert [field.name for field in lease_fields.named(names)] == list(names)
    assert len(set(names)) == len(names)
