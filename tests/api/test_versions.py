# SPDX-License-Identifier: Apache-2.0
"""Version discovery and microversions, as other OpenStack services do them."""

from __future__ import annotations

import pytest
from keystoneauth1.discover import Discover
from keystoneauth1.session import Session

from gsaas.api import microversions
from tests.api import server
from tests.api.world import World, only_error

HEADER = "OpenStack-API-Version"
NEWEST = microversions.format_version(microversions.HISTORY[-1])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One world for all tests, none of which changes it."""
    made = World.build(tmp_path_factory.mktemp("world"))
    yield made
    made.database.close()


def test_the_root_names_the_versions_and_v1_describes_itself(world):
    version = {
        "id": "v1.0",
        "status": "CURRENT",
        "min_version": "1.0",
        "max_version": NEWEST,
        "links": [
            {"rel": "self", "href": "/v1/"},
            {"rel": "describedby", "href": "/v1/openapi.json"},
        ],
    }
    response = world.call(None, "GET", "/")
    assert (response.status_code, response.json) == (300, {"versions": [version]})
    response = world.call(None, "GET", "/v1")
    assert (response.status_code, response.json) == (200, {"version": version})


@pytest.mark.parametrize(
    ("asked", "spoken"),
    [
        (None, "1.0"),
        ("gpu-scheduling 1.0", "1.0"),
        ("gpu-scheduling 1.1", "1.1"),
        ("gpu-scheduling latest", NEWEST),
        ("compute 2.95", "1.0"),
        ("compute 2.95, gpu-scheduling 1.1", "1.1"),
    ],
)
def test_the_version_spoken_is_echoed(world, asked, spoken):
    headers = {} if asked is None else {HEADER: asked}
    response = world.call("reader", "GET", "/v1/leases", headers=headers)
    assert response.status_code == 200
    assert response.headers[HEADER] == f"gpu-scheduling {spoken}"
    assert HEADER in response.headers["Vary"]


@pytest.mark.parametrize("version", ["0.9", "1.1000", "2.0"])
def test_a_version_that_is_not_spoken_is_not_acceptable(world, version):
    headers = {HEADER: f"gpu-scheduling {version}"}
    error = only_error(world.call("reader", "GET", "/v1/leases", headers=headers))
    assert (error["status"], error["code"]) == (406, "gsaas.microversion.unsupported")
    assert (error["min_version"], error["max_version"]) == ("1.0", NEWEST)


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "1.0",
        "gpu-scheduling",
        "gpu-scheduling one",
        "gpu-scheduling 1",
        "gpu-scheduling 1.0.0",
        "gpu-scheduling 01.0",
        "gpu-scheduling 1.0 2.0",
        "gpu-scheduling 1.0, gpu-scheduling 1.0",
        "gpu-scheduling -1.0",
        "<\tDQ1}az",
        "gpu-scheduling " + "9" * 5000 + ".0",
        "gpu-scheduling 1.\N{ARABIC-INDIC DIGIT ZERO}".encode().decode("latin-1"),
    ],
)
def test_a_version_that_cannot_be_read_is_a_bad_request(world, asked):
    error = only_error(world.call("reader", "GET", "/v1/leases", headers={HEADER: asked}))
    assert (error["status"], error["code"]) == (400, "gsaas.microversion.malformed")


def test_discovery_works_with_an_unsupported_microversion(world):
    response = world.call(None, "GET", "/v1", headers={HEADER: "gpu-scheduling 9.9"})
    assert response.status_code == 200


def test_microversions_only_grow():
    assert list(microversions.HISTORY) == sorted(set(microversions.HISTORY))


@pytest.mark.slow
def test_an_openstack_client_finds_version_1_by_relative_links(world):
    with server.serving(world.app) as url:
        (version,) = Discover(Session(), url).version_data()
        assert version["url"] == f"{url}/v1/"
