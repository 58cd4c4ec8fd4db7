# SPDX-License-Identifier: Apache-2.0
"""Each field exists from the microversion on that its schema names: in bodies, in queries and in answers.

Older requests that use it are refused, and their answers do not have it. All of this is tested for all fields of all
routes at all microversions, derived from the schemas, so that a new field is tested as soon as it is declared.
"""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from gsaas import exceptions
from gsaas.api import newer_fields
from gsaas.api.routes import ROUTES
from gsaas.api.schemas import common
from gsaas.api.validation import Schema
from tests.api.fields import (
    ANSWER,
    BODY,
    QUERY,
    VERSIONS,
    Field,
    called,
    example,
    fields,
    has,
    paths,
    walk,
    with_only,
)
from tests.api.test_personas import BODIES
from tests.api.world import World, address, only_error

HEADER = "OpenStack-API-Version"
TAKEN = [*fields(BODY), *fields(QUERY)]
NEWER = [
    field for field in TAKEN if field.since != field.route.since and "x-openstack" in field.schema
]
"""What is in a newer object is refused with it."""
DIGESTS = {
    "1.0": "e93a5d5b809e74ab",
    "1.1": "2f23796ae8bcbb59",
    "1.2": "d3e1fa296910ced6",
    "1.3": "d3e1fa296910ced6",
    "1.4": "1d9ee676554f8f03",
    "1.5": "06a9b3824601b950",
    "1.6": "7db35b3291e8b64a",
    "1.7": "b37cfc6b90588882",
    "1.8": "dac6c47e945a131d",
    "1.9": "c49b8a609ba34ca4",
    "1.10": "eb8b4c7f479976ea",
}
"""Microversion -> a digest of all its fields. A microversion that clients know never changes."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A world with a lease; nothing here changes it."""
    made = World.build(tmp_path_factory.mktemp("world"))
    made.launch(mode="shared", memory_mb=1024)
    yield made
    made.database.close()


def headers(version: str) -> dict[str, str]:
    return {HEADER: f"gpu-scheduling {version}"}


def use(world: World, field: Field, version: str):
    """Send a request that has this field; the rest of its body is valid."""
    route, value = field.route, example(field.schema)
    path = address(route)
    if field.place == QUERY:
        values = value if isinstance(value, list) else [value]
        path += "?" + "&".join(f"{field.path[0]}={each}" for each in values)
        return world.call("admin", route.method, path, headers=headers(version))
    body = _merged(BODIES[route.method, route.path], with_only(field.path, value))
    return world.call("admin", route.method, path, body, headers=headers(version))


def _merged(body, more):
    if not (isinstance(body, dict) and isinstance(more, dict)):
        return more
    return body | {name: _merged(body.get(name), each) for name, each in more.items()}


@pytest.mark.parametrize("field", NEWER, ids=str)
def test_a_request_with_a_field_that_is_newer_than_its_microversion_is_refused(world, field):
    before = world.rows()
    for version in VERSIONS:
        if not has(version, field.route.since) or has(version, field.since):
            continue
        error = only_error(use(world, field, version))
        assert error["status"] == 400
        assert error["detail"] == (
            f"{called(field.path)} needs microversion {field.since} or newer, and this request is for {version}; "
            f"ask for it with the header OpenStack-API-Version: gpu-scheduling {field.since}"
        )
    assert world.rows() == before


@pytest.mark.parametrize("field", NEWER, ids=str)
def test_from_its_microversion_on_it_is_not(tmp_path, field):
    """Other reasons remain: the reservation of the example is not there, and a direction alone sorts nothing."""
    world = World.build(tmp_path)
    for version in VERSIONS:
        if has(version, field.since):
            response = use(world, field, version)
            assert (
                response.status_code < 400 or "microversion" not in only_error(response)["detail"]
            )
    world.database.close()


def test_there_are_such_fields_in_bodies_and_in_queries():
    assert {field.place for field in NEWER} == {BODY, QUERY}


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_field_is_refused_before_its_microversion_and_only_then(version):
    """Whatever else is wrong with a body or a query that has nothing but this field."""
    for schema in [s for route in ROUTES for s in (route.takes.body, route.takes.query) if s]:
        check = Schema(schema).check
        for path, field, since in walk(schema, "1.0"):
            try:
                check(with_only(path, example(field)), version)
                refusal = ""
            except exceptions.BadRequest as error:
                refusal = str(error)
            # What it is in may itself be too new.
            named = {called(path[: length + 1]) for length in range(len(path))}
            too_new = refusal.partition(" needs microversion ")[0] in named
            assert too_new == (not has(version, since)), (path, refusal)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_has_the_fields_of_its_microversion_and_no_other(version):
    for route in ROUTES:
        schema = route.returns.schema or {}
        answer = example(schema)
        before = json.dumps(answer)
        expected = {path for path, _, since in walk(schema, "1.0") if has(version, since)}
        assert paths(route.returns.prune(answer, version)) == expected, route.path
        assert json.dumps(answer) == before  # whoever else has it keeps it


@pytest.mark.parametrize("version", VERSIONS)
def test_leases_and_gpus_are_shown_as_their_microversion_has_them(world, version):
    every = "/v1/leases?all_projects=true"
    (lease,) = world.call("admin", "GET", every, headers=headers(version)).json["leases"]
    gpu = world.call("admin", "GET", "/v1/gpus", headers=headers(version)).json["gpus"][0]
    shown = {("leases", "[]", name) for name in lease} | {("gpus", "[]", name) for name in gpu}
    newer = {
        field.path: field.since
        for field in fields(ANSWER)
        if field.route.path in ("/v1/leases", "/v1/gpus")
        and field.route.method == "GET"
        and len(field.path) == 3
        and field.since != "1.0"
    }
    assert len(newer) >= 8
    for path, since in newer.items():
        assert (path in shown) == has(version, since), path


def test_a_request_without_the_header_gets_what_the_oldest_microversion_has(world):
    plain = world.call("admin", "GET", "/v1/gpus").json
    assert plain == world.call("admin", "GET", "/v1/gpus", headers=headers("1.0")).json
    assert "reserved_mb" not in plain["gpus"][0]


INNER = common.record({"old": {"type": "string"}, "new": common.since("1.4", {"type": "string"})})
NESTED = common.record(
    {
        "one": common.nullable(INNER),
        "many": {"type": "array", "items": INNER},
        "newest": common.since("1.6", INNER),
    },
    optional=("one", "many"),
)


@pytest.mark.parametrize(
    ("value", "name", "since"),
    [
        ({"one": {"old": "x", "new": "x"}}, "one.new", "1.4"),
        ({"many": [{"old": "x"}, {"old": "x", "new": "x"}]}, "many[1].new", "1.4"),
        ({"newest": {"old": "x"}}, "newest", "1.6"),
        ({"newest": 1, "unknown": 1}, "newest", "1.6"),
    ],
)
def test_a_newer_field_is_found_wherever_it_is(value, name, since):
    schema = Schema(NESTED)
    with pytest.raises(
        exceptions.BadRequest, match=rf"^{re.escape(name)} needs microversion {since} "
    ):
        schema.check(value, "1.3")
    schema.check({"one": None}, "1.0")
    if "unknown" not in value:
        schema.check(value, "1.6")
        with pytest.raises(exceptions.BadRequest):
            schema.check(value, "1.3")  # that it is valid in another microversion is no answer here


def test_newer_fields_are_left_out_wherever_they_are():
    value = {"one": {"old": 1, "new": 2}, "many": [{"old": 1, "new": 2}], "newest": {"old": 1}}
    prune = {version: newer_fields.pruner(NESTED, version) for version in ("1.3", "1.5", "1.6")}
    assert prune["1.3"](value) == {"one": {"old": 1}, "many": [{"old": 1}]}
    assert prune["1.3"]({"one": None, "many": []}) == {"one": None, "many": []}
    assert prune["1.5"](value) == {name: value[name] for name in ("one", "many")}
    assert prune["1.6"] is None


def test_the_document_says_since_when_each_field_exists(world):
    """A schema with a title is one component for all its uses, some of which may be older: it can have no note."""
    text = json.dumps(world.call(None, "GET", "/v1/openapi.json").json)
    for field in (*TAKEN, *fields(ANSWER)):
        if "x-openstack" in field.schema:
            assert "title" not in field.schema, str(field)
            since = field.schema["x-openstack"]["min-ver"]
            assert f"{field.schema['description']} New in microversion {since}." in text


@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_a_microversion_that_clients_know_never_changes(version):
    """A new field needs `common.since(NEW, {...})`, a new route `since=NEW`, and NEW a row in `HISTORY`."""
    known = sorted(
        str(field)
        for place in (BODY, QUERY, ANSWER)
        for field in fields(place)
        if has(version, field.since)
    )
    digest = hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
    assert version in DIGESTS, f'add to DIGESTS: "{version}": "{digest}"'
    assert digest == DIGESTS[version], f"fields of microversion {version} were added or removed"
