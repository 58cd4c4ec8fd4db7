# SPDX-License-Identifier: Apache-2.0
"""The mistakes behind two advisories on Cyborg, which gives out accelerators too: not here.

CVE-2026-40213: rules whose default let in everybody with a token, whatever its roles and project.
CVE-2026-40214: things that belonged to no project, so that no rule kept other projects from them;
and attachments to servers that any user could undo, where only another service should.
"""

from __future__ import annotations

import flask
import pytest
import sqlalchemy
from oslo_db.exception import DBError
from oslo_policy import policy

import gsaas.conf
from gsaas.api import rbac
from gsaas.context import RequestContext
from gsaas.db import models
from tests.api.world import ROUTES, World, address, only_error

GUARDED = [route for route in ROUTES if route.rule]
RULES = [rule for rule in rbac.list_rules() if isinstance(rule, policy.DocumentedRuleDefault)]
ALL_ROLES = ["admin", "manager", "member", "reader", "service"]

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
each_guarded_route = pytest.mark.parametrize(
    "route", GUARDED, ids=lambda route: f"{route.method} {route.path}"
)


@pytest.fixture(scope="module")
def enforcer() -> policy.Enforcer:
    return rbac.enforcer(gsaas.conf.load(files=[]))


class StubAuthenticator:
    """An authenticator that returns the context that a test has set."""

    context = RequestContext()

    def __call__(self, _request: flask.Request) -> RequestContext:
        return self.context


@pytest.fixture(scope="module")
def anybody(tmp_path_factory):
    """The small cloud with a lease of project blue, whose caller a test sets."""
    caller = StubAuthenticator()
    world = World.build(tmp_path_factory.mktemp("anybody"), authenticate=caller)
    caller.context = RequestContext.of(user_id="u", project_id="blue", roles=["member"])
    world.launch()
    yield world, caller
    world.database.close()


# Rules left at "everybody"


@each_rule
@pytest.mark.parametrize("roles", [[], ["everybody", "_member_", "Admins", "admin2"]], ids=str)
def test_no_rule_allows_a_caller_without_a_known_role(enforcer, rule, roles):
    for project in ("blue", "red", None):
        caller = {"user_id": "u", "project_id": project, "roles": roles}
        for thing in ({"project_id": "blue", "user_id": "u"}, {}, caller):
            assert not enforcer.enforce(rule.name, thing, dict(caller))


@each_rule
def test_every_rule_is_for_projects(rule):
    assert rule.scope_types == ["project"]


@each_guarded_route
def test_every_guarded_route_names_a_rule_that_there_is(route):
    assert route.rule in {rule.name for rule in RULES}


def test_a_rule_that_does_not_exist_allows_nothing(enforcer):
    caller = {"user_id": "u", "project_id": "blue", "roles": ALL_ROLES}
    assert not enforcer.enforce("gsaas:leases:forgotten", {"project_id": "blue"}, caller)


def test_only_routes_that_reveal_no_projects_or_hosts_need_no_token():
    assert {route.path for route in ROUTES if not route.rule} == {
        "/",
        "/v1",
        "/v1/openapi.json",
        "/healthcheck",
        "/metrics",
    }


# Things, and callers, without a project


@each_rule
def test_two_missing_projects_are_not_the_same_project(enforcer, rule):
    """oslo.policy compares text, in which None equals None. Only roles that need no project may pass."""
    caller = {"user_id": "u", "project_id": None, "roles": ["reader", "member", "manager"]}
    assert not enforcer.enforce(rule.name, {"project_id": None}, caller)
    assert not enforcer.enforce(rule.name, {}, caller)


def test_the_database_takes_no_lease_without_a_project(world):
    lease_id = world.launch()["id"]
    orphaned = (
        sqlalchemy.update(models.LeaseRow)
        .where(models.LeaseRow.id == lease_id)
        .values(project_id=None)
    )
    with pytest.raises(DBError, match="project_id"), world.database.write() as session:
        session.execute(orphaned)


SCOPES = {
    "system": {"system_scope": "all"},
    "domain": {"domain_id": "default"},
    "nothing": {},
    "an empty project": {"project_id": ""},
}


@each_guarded_route
@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES.keys())
def test_a_token_without_a_project_is_refused_by_every_route(anybody, route, scope):
    """Nor does such a caller see the resources of all projects, as a query without a filter by project would return."""
    world, caller = anybody
    with world.database.read() as session:
        lease_id = session.scalars(sqlalchemy.select(models.LeaseRow.id)).first()
    before = world.rows()
    caller.context = RequestContext(user_id="u", roles=ALL_ROLES, **scope)
    response = world.call(None, route.method, address(route, lease_id=lease_id))
    error = only_error(response)
    assert (error["status"], error["code"]) == (403, "gsaas.forbidden.no-project")
    assert lease_id not in response.text
    assert world.rows() == before


# Undoing what another service attached


def test_no_request_can_set_what_a_lease_is_bound_to():
    """Only the engine sets server, host and port: a caller may terminate a lease, but not change its binding."""
    writing = {route.path for route in ROUTES if route.method in ("POST", "PUT", "PATCH")}
    assert (
        writing
        == {
            "/v1/leases",
            "/v1/leases/{lease_id}",  # PATCH: name and priority
            "/v1/leases/{lease_id}/keepalive",
            "/v1/leases/{lease_id}/move",  # to other GPUs; its server, host and port stay
            "/v1/reservations",
            "/v1/reservations/{reservation_id}",  # PATCH: name
            "/v1/grants/redeem",
            "/v1/checks",
            "/v1/gpus/{uuid}",
            "/v1/gpus/{uuid}/adopt",
            "/v1/hosts/{name}",
            "/v1/settings",
            "/v1/policies",
            "/v1/vendordata",  # Nova's service: it asks for a server that Nova has, and may have its lease claimed
        }
    )


@pytest.mark.parametrize(
    "field", ["server_id", "server_host", "bound_host", "port_id", "status", "project_id", "id"]
)
def test_a_launch_cannot_name_what_is_the_engines_to_fill_in(world, field):
    body = {"lease": {"cgpus": {"count": 1}, field: "00000000-0000-4000-8000-000000000000"}}
    assert only_error(world.call("admin", "POST", "/v1/leases", body))["status"] == 400


@pytest.mark.parametrize("caller", ["service", "service of blue", "reader", "stranger"])
def test_only_its_own_project_can_end_a_bound_lease(world, caller):
    lease_id = world.launch("member")["id"]
    world.engine.settle()
    before = world.rows()
    assert world.call(caller, "DELETE", f"/v1/leases/{lease_id}").status_code in (403, 404)
    assert world.rows() == before


@pytest.mark.parametrize(
    "header", ["X-Service-Token", "X-Service-Roles", "X-Roles", "X-Project-Id"]
)
def test_identity_headers_of_a_caller_have_no_effect(world, header):
    """The identity headers, which only auth_token may set, have no effect in a request."""
    lease_id = world.launch("member")["id"]
    for value in ("admin", "service", "blue", "token-of-the-service"):
        said = {
            header: value,
            "X-Identity-Status": "Confirmed",
            "X-Service-Identity-Status": "Confirmed",
        }
        answer = world.call("stranger", "DELETE", f"/v1/leases/{lease_id}", headers=said)
        assert answer.status_code == 404
