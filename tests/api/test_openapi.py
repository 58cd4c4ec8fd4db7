# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document is valid, complete, and true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import openapi_spec_validator
import pytest

from gsaas.api.route import PATH_PARAMETER
from gsaas.api.routes import ROUTES
from tests.api.server import serving
from tests.api.world import World, token


@pytest.fixture
def document(world):
    return world.call(None, "GET", "/v1/openapi.json").json


@pytest.mark.slow
def test_the_document_is_valid_openapi(document):
    openapi_spec_validator.validate(document)


def test_the_document_names_every_route_and_no_other(document):
    described = {
        (method.upper(), path): operation
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert set(described) == {(route.method, route.path) for route in ROUTES}
    assert len({operation["operationId"] for operation in described.values()}) == len(ROUTES)
    for operation in described.values():
        assert operation["summary"].endswith(".")


def test_every_route_of_the_application_is_in_the_table(world):
    served = {
        (method, PATH_PARAMETER.sub("{}", rule.rule.replace("<", "{").replace(">", "}")))
        for rule in world.app.url_map.iter_rules()
        for method in rule.methods - {"HEAD"}
    }
    assert served == {(route.method, PATH_PARAMETER.sub("{}", route.path)) for route in ROUTES}


def test_every_component_is_used(document):
    text = str(document)
    for name in document["components"]["schemas"]:
        assert f"#/components/schemas/{name}'" in text


def test_every_input_says_what_it_is_for():
    for route in ROUTES:
        for name, schema in route.takes.query["properties"].items():
            assert schema.get("description"), f"{route.path}?{name}"


@pytest.mark.slow
@pytest.mark.parametrize("examples", [3, pytest.param(12, marks=pytest.mark.thorough)])
def test_the_document_is_true(tmp_path, examples):
    """Schemathesis calls every operation with what it allows and what it forbids, over real HTTP.

    No answer is a server error, and none differs from what the document says.
    A lease that nobody boots stays CLAIMED, and an answer that waits for its change would be too late: none waits here.
    """
    world = World.build(tmp_path, settings="[queue]\nlong_polls = 0\n")
    with serving(world.app) as url:
        run = subprocess.run(
            [
                Path(sys.executable).with_name("schemathesis"),
                f"--config-file={Path(__file__).with_name('schemathesis.toml')}",
                "run",
                f"{url}/v1/openapi.json",
                f"--url={url}",
                f"--header=X-Auth-Token: {token('admin')}",
                "--checks=all",
                # Deleting takes its time here: a host is listed until its last GPU was given back.
                "--exclude-checks=use_after_free",
                "--continue-on-failure",
                f"--max-examples={examples}",
                "--seed=1",
                "--generation-database=none",
                "--suppress-health-check=all",
                "--warnings=off",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    world.database.close()
    assert run.returncode == 0, run.stdout + run.stderr
