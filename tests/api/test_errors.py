# SPDX-License-Identifier: Apache-2.0
"""Every error has the same form, and every situation a code of its own."""

from __future__ import annotations

import http
import logging
import re

import pytest
from oslo_db import exception as db_exception

from gsaas import exceptions
from gsaas.api import errors  # noqa: F401 - brings its own situations along
from tests.api.world import ROUTES, address, only_error


def families(family=exceptions.GsaasError):
    yield family
    for inner in family.__subclasses__():
        yield from families(inner)


def test_every_situation_has_a_code_of_its_own_and_an_http_error_status():
    situations = set(families())
    assert len({situation.code for situation in situations}) == len(situations)
    for situation in situations:
        assert re.fullmatch(r"gsaas(\.[a-z-]+)+", situation.code)
        assert 400 <= http.HTTPStatus(situation.status) < 600


def test_only_an_unnamed_situation_is_an_internal_error():
    assert [s for s in families() if s.status == 500] == [exceptions.GsaasError]


def test_an_unknown_address_is_not_found(world):
    for path in ("/v2", "/v1/lease", "/v1/leases/a/b", "//v1/leases", "/v1//leases", "/%00"):
        error = only_error(world.call("admin", "GET", path))
        assert (error["status"], error["code"]) == (404, "gsaas.url.not-found"), path


def test_a_slash_at_the_end_changes_nothing(world):
    for path in ("/v1/", "/v1/leases/", "/v1/policies/"):
        assert world.call("admin", "GET", path).status_code == 200


@pytest.mark.parametrize("path", sorted({route.path for route in ROUTES}))
def test_other_methods_are_refused_and_the_right_ones_named(world, path):
    known = {route.method for route in ROUTES if route.path == path}
    known |= {"HEAD"} if "GET" in known else set()
    for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - known:
        route = next(route for route in ROUTES if route.path == path)
        response = world.call("admin", method, address(route))
        assert response.status_code == 405
        assert set(response.allow) == known
        if method != "HEAD":
            assert only_error(response)["code"] == "gsaas.method-not-allowed"


def test_a_bug_is_logged_with_its_traceback_and_the_response_has_only_the_request_id(
    world, monkeypatch, caplog
):
    def broken(*_args):
        raise RuntimeError("the secret is xyzzy")

    monkeypatch.setattr(world.claims, "check", broken)
    with caplog.at_level(logging.ERROR):
        response = world.call("member", "POST", "/v1/checks", {"check": {"count": 1}})
    error = only_error(response)
    assert (error["status"], error["code"]) == (500, "gsaas.internal")
    assert "xyzzy" not in response.text
    (record,) = (record for record in caplog.records if record.exc_info)
    assert error["request_id"] in record.getMessage()
    assert "the secret is xyzzy" in caplog.text


def test_an_unreachable_database_is_a_reason_to_try_again(world, monkeypatch):
    def unreachable():
        raise db_exception.DBConnectionError

    monkeypatch.setattr(world.database, "reading", unreachable)
    for path, code in (
        ("/v1/leases", "gsaas.database.unreachable"),
        ("/healthcheck", "gsaas.unhealthy"),
    ):
        error = only_error(world.call("admin", "GET", path))
        assert (error["status"], error["code"]) == (503, code)


def test_a_healthy_service_responds_200(world):
    assert world.call(None, "GET", "/healthcheck").json == {"status": "ok"}


def test_a_callers_global_request_id_does_not_replace_the_request_id(world):
    theirs = "req-11111111-2222-4333-8444-555555555555"
    seen = [
        world.call(
            "admin", "GET", "/v1/leases", headers={"X-OpenStack-Request-ID": theirs}
        ).headers["X-OpenStack-Request-ID"]
        for _ in range(2)
    ]
    assert len({theirs, *seen}) == 3
