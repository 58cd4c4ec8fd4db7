"""Who may call what: every route, every kind of caller."""

from __future__ import annotations

import pytest

from gsaas.api import rbac
from tests.api.world import CALLERS, ROUTES, World, address, only_error

EVERYBODY = {None, *CALLERS}
READERS = {"admin", "manager", "member", "reader", "stranger", "service"}
MEMBERS = {"admin", "manager", "member", "stranger"}
ADMINS = {"admin"}

MAY = {
    ("GET", "/"): EVERYBODY,
    ("GET", "/v1"): EVERYBODY,
    ("GET", "/v1/openapi.json"): EVERYBODY,
    ("GET", "/healthcheck"): EVERYBODY,
    ("POST", "/v1/leases"): MEMBERS,
    ("GET", "/v1/leases"): READERS,
    ("GET", "/v1/leases/{lease_id}"): READERS,
    ("GET", "/v1/leases/{lease_id}/environment"): MEMBERS,
    ("DELETE", "/v1/leases/{lease_id}"): MEMBERS,
    ("POST", "/v1/checks"): MEMBERS,
    ("GET", "/v1/gpus"): READERS,
    ("GET", "/v1/gpus/{uuid}"): ADMINS,
    ("PATCH", "/v1/gpus/{uuid}"): ADMINS,
    ("GET", "/v1/hosts"): READERS,
    ("GET", "/v1/hosts/{name}"): ADMINS,
    ("PATCH", "/v1/hosts/{name}"): ADMINS,
    ("GET", "/v1/endpoints"): ADMINS,
    ("GET", "/v1/endpoints/{host}"): ADMINS,
    ("GET", "/v1/policies"): READERS,
    ("GET", "/v1/limits"): READERS,
}
"""Whom each route lets in. The stranger is let in too, but the lease is not there for it."""

BODIES = {
    ("POST", "/v1/leases"): {"lease": {"cgpus": {"count": 1, "mode": "shared", "memory_mb": 1}}},
    ("POST", "/v1/checks"): {"check": {"count": 1}},
    ("PATCH", "/v1/gpus/{uuid}"): {"gpu": {"disabled": False}},
    ("PATCH", "/v1/hosts/{name}"): {"host": {"disabled": False}},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World.build(tmp_path_factory.mktemp("world"))
    yield made
    made.database.close()


def test_the_table_here_names_every_route():
    assert {(route.method, route.path) for route in ROUTES} == set(MAY)


@pytest.mark.parametrize("caller", sorted(EVERYBODY, key=str))
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_each_caller_is_let_in_where_the_table_says_and_nowhere_else(world, route, caller):
    key = (route.method, route.path)
    lease_id = world.launch("member", mode="shared", memory_mb=1)["id"]
    before = world.rows()
    path = address(route, lease_id=lease_id)
    response = world.call(caller, route.method, path, BODIES.get(key))

    if caller in MAY[key]:
        hidden = caller == "stranger" and lease_id in path
        assert response.status_code == (404 if hidden else route.status)
        return
    error = only_error(response)
    assert error["status"] == (401 if caller is None else 403)
    if caller is None:
        assert "WWW-Authenticate" in response.headers
    else:
        assert route.rule in error["detail"]
    assert world.rows() == before


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_wrong_token_opens_nothing_that_needs_one(world, route):
    path = address(route)
    response = world.call(None, route.method, path, headers={"X-Auth-Token": "x" * 20})
    assert (response.status_code == 401) == (route.rule is not None)


def test_a_body_is_not_looked_at_before_the_caller_is_known(world):
    nonsense = {"data": b"{", "headers": {"Content-Type": "text/plain"}}
    assert world.call(None, "POST", "/v1/leases", **nonsense).status_code == 401
    assert world.call("reader", "POST", "/v1/leases", **nonsense).status_code == 403
    assert world.call("member", "POST", "/v1/leases", **nonsense).status_code == 415


def test_every_rule_is_documented_and_used():
    guarding = {route.rule for route in ROUTES if route.rule}
    documented = {rule.name: rule for rule in rbac.list_rules() if hasattr(rule, "operations")}
    inside_handlers = {"gsaas:leases:list-all-projects", "gsaas:leases:show-placement"}
    assert set(documented) == guarding | inside_handlers
    paths = {(route.method, route.path) for route in ROUTES}
    for rule in documented.values():
        for operation in rule.operations:
            assert (operation["method"], operation["path"].partition("?")[0]) in paths


def test_an_operator_can_make_leases_private_to_their_makers(tmp_path):
    """Rules of the policy file see the lease at hand, not only its project."""
    rules = tmp_path / "policy.yaml"
    rules.write_text('"gsaas:leases:delete": "user_id:%(user_id)s"\n', encoding="utf-8")
    world = World.build(tmp_path, settings=f"[oslo_policy]\npolicy_file = {rules}\n")
    lease_id = world.launch("member")["id"]
    assert world.call("manager", "DELETE", f"/v1/leases/{lease_id}").status_code == 403
    assert world.call("member", "DELETE", f"/v1/leases/{lease_id}").status_code == 202
    world.database.close()
