# SPDX-License-Identifier: Apache-2.0
"""The access of every kind of caller to every route."""

from __future__ import annotations

import pytest
import sqlalchemy

from gsaas.api import rbac
from gsaas.db import models
from tests.api.world import CALLERS, IDS, ROUTES, World, address, only_error

PERSONAS = (
    None,  # no token
    "nobody",  # a token without a role
    "reader",
    "member",
    "manager",
    "admin of blue",
    "service of blue",
    "reader of red",
    "stranger",  # a member of red
    "manager of red",
    "admin",  # of another project, as operators are
    "service",  # of another project, as services are
)
"""The first seven belong to the project that owns the lease, or to none."""

MATRIX = {
    #                                          of the lease's project          of another one
    #                                    none no-role reader member manager admin service | the last five
    ("GET", "/"):                        "ok  ok  ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("GET", "/v1"):                      "ok  ok  ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("GET", "/v1/openapi.json"):         "ok  ok  ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("GET", "/healthcheck"):             "ok  ok  ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("GET", "/metrics"):                 "ok  ok  ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("POST", "/v1/leases"):              "401 403 403 ok  ok  ok  403 | 403 ok  ok  ok  403",
    ("GET", "/v1/leases"):               "401 403 ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("GET", "/v1/leases/{lease_id}"):    "401 403 ok  ok  ok  ok  ok  | 404 404 404 ok  ok",
    ("GET", "/v1/leases/{lease_id}/environment"):
                                         "401 403 403 ok  ok  ok  403 | 403 404 404 ok  403",
    ("GET", "/v1/leases/{lease_id}/readings"):
                                         "401 403 ok  ok  ok  ok  ok  | 404 404 404 ok  ok",
    ("POST", "/v1/leases/{lease_id}/keepalive"):
                                         "401 403 403 ok  ok  ok  403 | 403 404 404 ok  403",
    ("POST", "/v1/leases/{lease_id}/move"):
                                         "401 403 403 403 403 ok  403 | 403 403 403 ok  403",
    ("PATCH", "/v1/leases/{lease_id}"):  "401 403 403 ok  ok  ok  403 | 403 404 404 ok  403",
    ("DELETE", "/v1/leases/{lease_id}"): "401 403 403 ok  ok  ok  403 | 403 404 404 ok  403",
    ("POST", "/v1/reservations"):        "401 403 403 ok  ok  ok  403 | 403 ok  ok  ok  403",
    ("GET", "/v1/reservations"):         "401 403 ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("GET", "/v1/reservations/{reservation_id}"):
                                         "401 403 ok  ok  ok  ok  ok  | 404 404 404 ok  ok",
    ("PATCH", "/v1/reservations/{reservation_id}"):
                                         "401 403 403 ok  ok  ok  403 | 403 404 404 ok  403",
    ("DELETE", "/v1/reservations/{reservation_id}"):
                                         "401 403 403 ok  ok  ok  403 | 403 404 404 ok  403",
    ("POST", "/v1/grants/redeem"):       "401 403 403 403 403 ok  ok  | 403 403 403 ok  ok",
    ("GET", "/v1/queue"):                "401 403 ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("POST", "/v1/checks"):              "401 403 403 ok  ok  ok  403 | 403 ok  ok  ok  403",
    ("GET", "/v1/gpus"):                 "401 403 ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("GET", "/v1/models"):               "401 403 ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("GET", "/v1/gpus/{uuid}"):          "401 403 403 403 403 ok  403 | 403 403 403 ok  403",
    ("PATCH", "/v1/gpus/{uuid}"):        "401 403 403 403 403 ok  403 | 403 403 403 ok  403",
    ("POST", "/v1/gpus/{uuid}/adopt"):   "401 403 403 403 403 ok  403 | 403 403 403 ok  403",
    ("GET", "/v1/hosts"):                "401 403 ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("GET", "/v1/hosts/{name}"):         "401 403 403 403 403 ok  403 | 403 403 403 ok  403",
    ("PATCH", "/v1/hosts/{name}"):       "401 403 403 403 403 ok  403 | 403 403 403 ok  403",
    ("DELETE", "/v1/hosts/{name}"):      "401 403 403 403 403 ok  403 | 403 403 403 ok  403",
    ("GET", "/v1/endpoints"):            "401 403 403 403 403 ok  403 | 403 403 403 ok  403",
    ("GET", "/v1/endpoints/{host}"):     "401 403 403 403 403 ok  403 | 403 403 403 ok  403",
    ("GET", "/v1/policies"):             "401 403 ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("GET", "/v1/policies/{policy}"):    "401 403 ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("PATCH", "/v1/policies"):           "401 403 403 403 403 ok  403 | 403 403 403 ok  403",
    ("GET", "/v1/settings"):             "401 403 403 403 403 ok  403 | 403 403 403 ok  403",
    ("PATCH", "/v1/settings"):           "401 403 403 403 403 ok  403 | 403 403 403 ok  403",
    ("GET", "/v1/limits"):               "401 403 ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("GET", "/v1/usage"):                "401 403 ok  ok  ok  ok  ok  | ok  ok  ok  ok  ok",
    ("POST", "/v1/vendordata"):          "401 403 403 403 403 ok  ok  | 403 403 403 ok  ok",
}  # fmt: skip
"""The status of each persona's response; ok is the route's own status without an error."""

CELLS = [
    pytest.param(route, persona, expected, id=f"{route.method} {route.path} as {persona}")
    for route in ROUTES
    for persona, expected in zip(
        PERSONAS, MATRIX[route.method, route.path].replace("|", "").split(), strict=True
    )
]
READERS = [name for name, (_, roles) in CALLERS.items() if roles and "admin" not in roles]
"""The personas that may see something, but not its placement."""

BODIES = {
    ("POST", "/v1/leases"): {"lease": {"cgpus": {"count": 1, "mode": "shared", "memory_mb": 1}}},
    ("PATCH", "/v1/leases/{lease_id}"): {"lease": {"name": "renamed"}},
    ("POST", "/v1/leases/{lease_id}/move"): {"move": {}},
    ("POST", "/v1/reservations"): {
        "reservation": {
            "cgpus": {"count": 1, "mode": "shared", "memory_mb": 1},
            "end": "2040-01-31",
        }
    },
    ("PATCH", "/v1/reservations/{reservation_id}"): {"reservation": {"name": "renamed"}},
    ("POST", "/v1/checks"): {"check": {"count": 1}},
    ("POST", "/v1/grants/redeem"): {"grant": {"key": "", "address": "192.0.2.1"}},
    ("PATCH", "/v1/gpus/{uuid}"): {"gpu": {"disabled": False}},
    ("POST", "/v1/gpus/{uuid}/adopt"): {"adopt": {"host": "gpu1"}},
    ("PATCH", "/v1/policies"): {"policies": {"default": None}},
    ("PATCH", "/v1/hosts/{name}"): {"host": {"disabled": False}},
    ("PATCH", "/v1/settings"): {"settings": {"monitor_interval": 5}},
    ("POST", "/v1/vendordata"): {"instance-id": IDS["lease_id"], "project-id": "blue"},
}


def lose_a_host(world: World, name: str) -> None:
    """Register a host that has not reported for long."""
    with world.database.write() as session:
        session.merge(models.HostRow(name=name))


def alloc(world: World) -> str:
    """Return the grant of a new lease without a server."""
    cgpus = {"count": 1, "mode": "shared", "memory_mb": 1}
    lease = {"lease": {"cgpus": cgpus, "server": None}}
    answer = world.call("member", "POST", "/v1/leases", lease)
    return answer.json["environment"]["GSAAS_GRANT"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    key = "[grants]\nkey = test:" + "dGVz" * 11 + "\n"
    made = World.build(tmp_path_factory.mktemp("world"), settings=key)
    yield made
    made.database.close()


def test_the_matrix_has_a_row_for_every_route_and_a_column_for_every_persona():
    assert {(route.method, route.path) for route in ROUTES} == set(MATRIX)
    assert set(PERSONAS) == {None, *CALLERS}


@pytest.fixture(scope="module")
def standing(world):
    """The id of a lease that no test ends."""
    return world.launch("member", mode="shared", memory_mb=1)["id"]


@pytest.fixture(scope="module")
def reserved(world):
    """The id of a reservation, which may be cancelled."""
    body = BODIES[("POST", "/v1/reservations")]
    newest = {"OpenStack-API-Version": "gpu-scheduling latest"}
    made = world.call("member", "POST", "/v1/reservations", body, headers=newest)
    return made.json["reservation"]["id"]


@pytest.mark.parametrize(("route", "persona", "expected"), CELLS)
def test_each_persona_is_answered_as_the_matrix_says(
    world, standing, reserved, route, persona, expected
):
    lease_id = standing
    if (route.method, route.path) == ("DELETE", "/v1/leases/{lease_id}"):
        lease_id = world.launch("member", mode="shared", memory_mb=1)["id"]
    if route.path == "/v1/leases/{lease_id}/move":
        lease_id = world.launch("member", mode="shared", memory_mb=1)["id"]
        world.engine.settle()
    if (route.method, route.path) == ("DELETE", "/v1/hosts/{name}"):
        lose_a_host(world, "gone")
    body = BODIES.get((route.method, route.path))
    if (route.method, route.path) == ("POST", "/v1/grants/redeem"):
        body = {"grant": body["grant"] | {"key": alloc(world)}}
    before = world.rows()
    name = "gone" if route.method == "DELETE" else "gpu1"
    path = address(route, lease_id=lease_id, reservation_id=reserved, name=name)
    newest = {"OpenStack-API-Version": "gpu-scheduling latest"}
    response = world.call(persona, route.method, path, body, headers=newest)

    if expected == "ok":
        assert response.status_code == route.returns.status
        return
    error = only_error(response)
    assert error["status"] == int(expected)
    assert world.rows() == before
    if expected == "401":
        assert "WWW-Authenticate" in response.headers
    elif expected == "403":
        assert route.rule in error["detail"]
    else:
        unknown = world.call(persona, route.method, address(route), body, headers=newest)
        detail = only_error(unknown)["detail"]
        for own, nobodys in ((lease_id, IDS["lease_id"]), (reserved, IDS["reservation_id"])):
            detail = detail.replace(nobodys, own)
        assert error["detail"] == detail


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """A cloud in full use: leases of two projects, booted, failed, claimed and half released."""
    made = World.build(tmp_path_factory.mktemp("busy"))
    made.launch("member", mode="shared", memory_mb=64, count=2)
    made.launch("stranger", mode="shared", memory_mb=64, locality="local")
    made.launch("admin")
    failing = made.launch("member")["id"]
    made.engine.settle()
    made.engine.fail(failing, "boot-server", "it was not ready in time")
    made.launch("member", mode="shared", memory_mb=64, locality="remote")
    leaving = made.launch("stranger", mode="shared", memory_mb=64)["id"]
    made.call("stranger", "DELETE", f"/v1/leases/{leaving}")
    yield made
    made.database.close()


def secrets(world: World) -> set[str]:
    """Return every name and address in the database that tenants must not see."""
    with world.database.read() as session:
        hosts = session.scalars(sqlalchemy.select(models.HostRow)).all()
        gpus = session.scalars(sqlalchemy.select(models.GpuRow)).all()
        leases = session.scalars(sqlalchemy.select(models.LeaseRow)).all()
    found = {host.name for host in hosts} | {host.gpu_address for host in hosts}
    found |= {gpu.uuid for gpu in gpus} | {lease.port_tap for lease in leases}
    found |= {lease.port_id for lease in leases} | {lease.port_mac for lease in leases}
    return found - {None}


def resources_of_other_projects(world: World, project_id: str) -> set[str]:
    """Return the ids and names of what belongs to other projects than *project_id*."""
    with world.database.read() as session:
        leases = session.scalars(
            sqlalchemy.select(models.LeaseRow).where(models.LeaseRow.project_id != project_id)
        ).all()
    found = {value for lease in leases for value in (lease.id, lease.name, lease.server_id)}
    return (found | {f'"{lease.project_id}"' for lease in leases}) - {None}


def all_answers(world: World, caller: str):
    """Yield all responses that *caller* can get, for every resource."""
    with world.database.read() as session:
        leases = session.scalars(sqlalchemy.select(models.LeaseRow.id)).all()
    for route in ROUTES:
        if route.method == "DELETE":
            continue
        body = BODIES.get((route.method, route.path))
        for lease_id in leases if "{lease_id}" in route.path else [""]:
            yield world.call(caller, route.method, address(route, lease_id=lease_id), body)
    big = {"count": 100}
    for cgpus in (big, big | {"locality": "local"}, {"count": 1, "locality": "remote"}):
        yield world.call(caller, "POST", "/v1/leases", {"lease": {"cgpus": cgpus}})
        yield world.call(caller, "POST", "/v1/checks", {"check": cgpus})
    for query in ("?status=ERROR", "?status=RELEASING", "?limit=1", "?all_projects=true"):
        yield world.call(caller, "GET", f"/v1/leases{query}")
    for lease_id in leases[-2:]:
        yield world.call(caller, "DELETE", f"/v1/leases/{lease_id}")


@pytest.mark.slow
@pytest.mark.parametrize("caller", READERS)
def test_no_answer_ever_names_a_host_a_gpu_or_a_real_address(busy, caller):
    answers = list(all_answers(busy, caller))
    hidden = secrets(busy)
    for response in answers:
        said = response.text + str(response.headers)
        # What the caller itself has put into the address may come back in a refusal.
        said = said.replace(response.request.path, "")
        assert [secret for secret in hidden if secret in said] == []


@pytest.mark.slow
@pytest.mark.parametrize("caller", [name for name in READERS if not name.startswith("service")])
def test_no_response_contains_resources_of_another_project(busy, caller):
    answers = list(all_answers(busy, caller))
    hidden = resources_of_other_projects(busy, CALLERS[caller][0])
    for response in answers:
        said = response.text + str(response.headers)
        asked = response.request.path.rpartition("/leases/")[2].partition("/")[0]
        if asked:
            said = said.replace(asked, "")
        assert [thing for thing in hidden if thing in said] == []


@pytest.mark.slow
def test_the_scan_itself_would_find_something(busy):
    """Admins do see the placement, so the two tests above search in the right places."""
    said = "".join(response.text for response in all_answers(busy, "admin"))
    assert "gpu1" in said
    assert "GPU-0001-0" in said
    assert "192.168.50.2" in said


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_wrong_token_is_refused_by_every_route_that_needs_one(world, route):
    path = address(route)
    response = world.call(None, route.method, path, headers={"X-Auth-Token": "x" * 20})
    assert (response.status_code == 401) == (route.rule is not None)


def test_a_body_is_not_read_before_the_caller_is_identified(world):
    nonsense = {"data": b"{", "headers": {"Content-Type": "text/plain"}}
    assert world.call(None, "POST", "/v1/leases", **nonsense).status_code == 401
    assert world.call("reader", "POST", "/v1/leases", **nonsense).status_code == 403
    assert world.call("member", "POST", "/v1/leases", **nonsense).status_code == 415


def test_every_rule_is_documented_and_used():
    guarding = {route.rule for route in ROUTES if route.rule}
    documented = {rule.name: rule for rule in rbac.list_rules() if hasattr(rule, "operations")}
    inside_handlers = {
        "gsaas:leases:create-without-server",
        "gsaas:leases:list-all-projects",
        "gsaas:leases:prioritise",
        "gsaas:leases:show-placement",
        "gsaas:reservations:list-all-projects",
        "gsaas:usage:show-all-projects",
    }
    assert set(documented) == guarding | inside_handlers
    paths = {(route.method, route.path) for route in ROUTES}
    for rule in documented.values():
        for operation in rule.operations:
            assert (operation["method"], operation["path"].partition("?")[0]) in paths


def test_an_operator_can_make_leases_private_to_their_makers(tmp_path):
    """Rules of the operator's file can refer to attributes of the lease other than its project."""
    rules = tmp_path / "policy.yaml"
    rules.write_text('"gsaas:leases:delete": "user_id:%(user_id)s"\n', encoding="utf-8")
    world = World.build(tmp_path, settings=f"[oslo_policy]\npolicy_file = {rules}\n")
    lease_id = world.launch("member")["id"]
    assert world.call("manager", "DELETE", f"/v1/leases/{lease_id}").status_code == 403
    assert world.call("member", "DELETE", f"/v1/leases/{lease_id}").status_code == 202
    world.database.close()
