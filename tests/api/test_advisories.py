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


class Anybody:
    """An authenticator for which the caller is whoever a test says."""

    context = RequestContext()

    def __call__(self, _request: flask.Request) -> RequestContext:
        return self.context


@pytest.fixture(scope="module")
def anybody(tmp_path_factory):
    """The small cloud with a lease of project blue in it, and a caller yet to be said."""
    caller = Anybody()
    world = World.build(tmp_path_factory.mktemp("anybody"), authenticate=caller)
    caller.context = RequestContext.of(user_id="u", project_id="blue", roles=["member"])
    world.launch()
    yield world, caller
    world.database.close()


# Rules left at "everybody"


@each_rule
@pytest.mark.parametrize("roles", [[], ["everybody", "_member_", "Admins", "admin2"]], ids=str)
def test_no_rule_lets_in_a_caller_whose_roles_are_none_of_ours(enforcer, rule, roles):
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


def test_a_rule_that_is_not_there_lets_in_nobody(enforcer):
    caller = {"user_id": "u", "project_id": "blue", "roles": ALL_ROLES}
    assert not enforcer.enforce("gsaas:leases:forgotten", {"project_id": "blue"}, caller)


def test_only_what_tells_nothing_of_projects_and_hosts_is_open():
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
    """Rules compare text, in which None equals None. Only roles that need no project may pass."""
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
def test_a_token_without_a_project_opens_nothing(anybody, route, scope):
    """Nor does it see everything, as a query that is not narrowed to a project would."""
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


def test_nobody_can_say_over_the_api_what_a_lease_is_bound_to():
    """Server, host and port are the engine's business: a caller may end a lease, not rewire it."""
    writing = {route.path for route in ROUTES if route.method in ("POST", "PUT", "PATCH")}
    assert writing == {
        "/v1/leases",
        "/v1/leases/{lease_id}/keepalive",
        "/v1/grants/redeem",
        "/v1/checks",
        "/v1/gpus/{uuid}",
        "/v1/hosts/{name}",
        "/v1/settings",
        "/v1/policies",
    }


@pytest.mark.parametrize(
    "field", ["server_id", "server_host", "bound_host", "port_id", "status", "project_id", "id"]
)
def test_a_launch_cannot_name_what_is_the_engines_to_fill_in(world, field):
    body = {"lease": {"cgpus": {"count": 1}, field: "00000000-0000-4000-8000-000000000000"}}
    assert only_error(world.call("admin", "POST", "/v1/leases", body))["status"] == 400


@pytest.mark.parametrize("caller", ["service", "service of blue", "reader", "stranger"])
def test_a_bound_lease_is_ended_by_its_project_and_by_nobody_else(world, caller):
    lease_id = world.launch("member")["id"]
    world.engine.settle()
    before = world.rows()
    assert world.call(caller, "DELETE", f"/v1/leases/{lease_id}").status_code in (403, 404)
    assert world.rows() == before


@pytest.mark.parametrize(
    "header", ["X-Service-Token", "X-Service-Roles", "X-Roles", "X-Project-Id"]
)
def test_a_caller_is_not_more_for_saying_so(world, header):
    """Headers in which auth_token tells a service who calls are nobody else's to send."""
    lease_id = world.launch("member")["id"]
    for value in ("admin", "service", "blue", "token-of-the-service"):
        said = {
            header: value,
            "X-Identity-Status": "Confirmed",
            "X-Service-Identity-Status": "Confirmed",
        }
        answer = world.call("stranger", "DELETE", f"/v1/leases/{lease_id}", headers=said)
        assert answer.status_code == 404
