# SPDX-License-Identifier: Apache-2.0
"""Authentication by Keystone: which tokens the API accepts, and how it refuses the others."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait

import pytest

import gsaas.conf
from gsaas.api.keystone import Keystone, KeystoneNotConfigured
from tests.api.world import World, only_error
from tests.support import keystone as double
from tests.support.waiting import until

SETTINGS = """
[keystone_authtoken]
auth_type = password
auth_url = {url}
www_authenticate_uri = https://cloud.example.org/identity
username = gsaas
password = secret
user_domain_name = Default
project_name = service
project_domain_name = Default
http_request_max_retries = 0
"""


@pytest.fixture
def keystone():
    with double.running() as made:
        yield made


@pytest.fixture
def world(keystone, tmp_path):
    """The small cloud with authentication by Keystone."""
    settings = SETTINGS.format(url=keystone.url)
    path = tmp_path / "keystone.conf"
    path.write_text(settings, encoding="utf-8")
    authenticate = Keystone(gsaas.conf.load(files=[str(path)]))
    made = World.build(tmp_path, authenticate=authenticate)
    yield made
    made.database.close()


def ask(world: World, token: str | None, method: str = "GET", path: str = "/v1/leases", **more):
    headers = {} if token is None else {"X-Auth-Token": token}
    return world.call(None, method, path, headers=headers | more.pop("headers", {}), **more)


def launch(world: World, token: str):
    body = {"lease": {"cgpus": {"count": 1, "mode": "shared", "memory_mb": 1}}}
    return ask(world, token, "POST", "/v1/leases", json=body)


def test_a_valid_token_identifies_the_caller_and_its_project(world, keystone):
    keystone.give_out("mine", roles=["member", "reader"], project="blue")
    lease = launch(world, "mine").json["lease"]
    assert (lease["user_id"], lease["project_id"]) == ("user-of-mine", "blue")


@pytest.mark.slow
def test_another_projects_token_sees_nothing_of_it(world, keystone):
    keystone.give_out("mine", roles=["member", "reader"], project="blue")
    keystone.give_out("theirs", roles=["member", "reader"], project="red")
    lease = launch(world, "mine").json["lease"]
    assert ask(world, "theirs").json == {"leases": []}
    assert ask(world, "theirs", path=f"/v1/leases/{lease['id']}").status_code == 404


def test_roles_are_those_that_keystone_names(world, keystone):
    keystone.give_out("looking", roles=["reader"])
    assert ask(world, "looking").status_code == 200
    assert only_error(launch(world, "looking"))["code"] == "gsaas.forbidden"


def test_without_a_token_the_answer_says_where_to_get_one(world):
    response = ask(world, None)
    assert only_error(response)["code"] == "gsaas.unauthorized"
    challenge = response.headers["WWW-Authenticate"]
    assert challenge == 'Keystone uri="https://cloud.example.org/identity"'


@pytest.mark.parametrize("token", ["unknown", "", "a b", "é" * 20, "x" * 5000])
def test_a_token_that_keystone_does_not_know_is_refused(world, token):
    assert only_error(ask(world, token))["code"] == "gsaas.unauthorized"


def test_an_expired_token_is_refused(world, keystone):
    keystone.give_out("old", roles=["admin"], lives=-1)
    assert only_error(ask(world, "old"))["code"] == "gsaas.unauthorized"


def test_open_addresses_do_not_ask_keystone(world, keystone):
    keystone.away = True
    for path in ("/", "/v1", "/v1/openapi.json", "/healthcheck", "/metrics"):
        assert ask(world, "whatever", path=path).status_code < 400
    assert keystone.checked == []


def test_a_keystone_that_is_away_is_not_the_callers_fault(world, keystone):
    keystone.give_out("mine", roles=["member"])
    keystone.away = True
    assert only_error(ask(world, "mine"))["code"] == "gsaas.identity.unavailable"
    keystone.away = False
    assert ask(world, "mine").status_code in (200, 403)


def at_once(world: World, token: str, number: int) -> list[Future]:
    """The answers to *number* requests with one token that come while the first still waits for Keystone."""
    executor = ThreadPoolExecutor(number)
    answers = [executor.submit(ask, world, token) for _ in range(number)]
    executor.shutdown(wait=False)
    return answers


def test_requests_with_one_token_ask_keystone_once(world, keystone):
    keystone.give_out("mine", roles=["reader"])
    keystone.may_answer.clear()
    answers = at_once(world, "mine", 8)
    until(lambda: keystone.checked, "the first question")
    wait(answers, 0.2)  # others would ask meanwhile
    keystone.may_answer.set()
    assert {answer.result().status_code for answer in answers} == {200}
    assert keystone.checked == ["mine"]


def test_requests_that_wait_for_a_keystone_that_is_away_fail_together(world, keystone):
    keystone.give_out("mine", roles=["reader"])
    keystone.may_answer.clear()
    answers = at_once(world, "mine", 8)
    until(lambda: keystone.checked, "the first question")
    wait(answers, 0.2)
    keystone.away = True
    keystone.may_answer.set()
    assert {answer.result().status_code for answer in answers} == {503}
    assert keystone.checked == ["mine"]
    keystone.away = False
    assert ask(world, "mine").status_code == 200


def test_a_keystone_that_does_not_listen_is_not_the_callers_fault(tmp_path):
    path = tmp_path / "keystone.conf"
    path.write_text(SETTINGS.format(url="http://127.0.0.1:1/v3"), encoding="utf-8")
    world = World.build(tmp_path, authenticate=Keystone(gsaas.conf.load(files=[str(path)])))
    assert only_error(ask(world, "mine"))["code"] == "gsaas.identity.unavailable"
    world.database.close()


def test_a_password_of_the_service_that_is_wrong_is_not_the_callers_fault(keystone, tmp_path):
    path = tmp_path / "keystone.conf"
    settings = SETTINGS.format(url=keystone.url).replace("secret", "wrong")
    path.write_text(settings, encoding="utf-8")
    world = World.build(tmp_path, authenticate=Keystone(gsaas.conf.load(files=[str(path)])))
    keystone.give_out("mine", roles=["member"])
    assert only_error(ask(world, "mine"))["code"] == "gsaas.identity.unavailable"
    world.database.close()


@pytest.mark.parametrize(
    "scope",
    [{"system": {"all": True}}, {"domain": {"id": "default", "name": "Default"}}, {}],
    ids=["system", "domain", "unscoped"],
)
def test_the_error_for_a_token_without_a_project_says_so(world, keystone, scope):
    keystone.give_out("scoped", roles=["admin", "member", "reader"], project=None, **scope)
    assert only_error(ask(world, "scoped"))["code"] == "gsaas.forbidden.no-project"


def test_identity_headers_of_the_caller_are_not_believed(world, keystone):
    keystone.give_out("mine", roles=["reader"], project="blue")
    claimed = {
        "X-Identity-Status": "Confirmed",
        "X-Service-Identity-Status": "Confirmed",
        "X-Project-Id": "red",
        "X-User-Id": "root",
        "X-Roles": "admin",
        "X-Service-Roles": "service",
    }
    assert ask(world, None, headers=claimed).status_code == 401
    assert ask(world, "unknown", headers=claimed).status_code == 401
    assert ask(world, "mine", path="/v1/endpoints", headers=claimed).status_code == 403


def test_a_service_token_has_to_be_one(world, keystone):
    """A valid token in X-Service-Token is not enough: its owner must have the service role."""
    keystone.give_out("mine", roles=["reader"])
    keystone.give_out("no-service", roles=["member"])
    answers = {
        token: ask(world, "mine", headers={"X-Service-Token": token}).status_code
        for token in ("token-of-the-service", "no-service", "unknown")
    }
    assert answers == {"token-of-the-service": 200, "no-service": 401, "unknown": 401}


def test_a_service_token_keeps_a_request_alive_whose_token_expired_meanwhile(world, keystone):
    keystone.give_out("old", roles=["reader"], lives=-1)
    kept = ask(world, "old", headers={"X-Service-Token": "token-of-the-service"})
    assert kept.status_code == 200


def test_an_application_credential_that_allows_one_call_allows_one_call(world, keystone):
    rule = {"id": "r", "service": "gpu-scheduling", "method": "GET", "path": "/v1/limits"}
    restricted = {"id": "a", "name": "a", "restricted": True, "access_rules": [rule]}
    keystone.give_out("narrow", roles=["reader"], application_credential=restricted)
    assert ask(world, "narrow", path="/v1/limits").status_code == 200
    assert ask(world, "narrow", path="/v1/leases").status_code == 401


def test_a_token_is_checked_once_and_remembered(world, keystone):
    keystone.give_out("mine", roles=["reader"])
    for _ in range(3):
        ask(world, "mine")
    assert keystone.checked == ["mine"]


def test_a_configuration_that_names_no_keystone_is_refused_with_the_cure():
    with pytest.raises(KeystoneNotConfigured, match=r"\[keystone_authtoken\]"):
        Keystone(gsaas.conf.load(files=[]))
