# SPDX-License-Identifier: Apache-2.0
"""Keystone itself: who may do what with real tokens, quotas as its unified limits, and a client's many ways in."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
from keystoneauth1 import identity
from keystoneauth1.session import Session
from openstack.connection import Connection

from gsaas.db import migration
from gsaas.db.database import Database
from gsaasclient import Client, ClientError, find_credentials
from tests.api.world import fill
from tests.openstack.bed import credentials, gsaas, keystone, settings

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(1800)]

TENANT = settings.TENANTS[0]
DOMAIN = "default"
REGION = "QuotaTest"
"""A region of the test's own, whose GSaaS has quotas; the cloud's own has none."""
CGPU = {"count": 1, "mode": "shared", "memory_mb": 64}


@dataclass
class People:
    """Users that exist while a test module runs, all with the same password."""

    admin: Connection
    password: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    _made: dict[str, Any] = field(default_factory=dict)

    def with_role(self, role: str, project: str = TENANT) -> str:
        """Return the name of a user who has just this role, and those it implies."""
        name = f"test-{role}-of-{project}"
        if name not in self._made:
            users = self.admin.identity
            user = users.create_user(name=name, password=self.password, domain_id=DOMAIN)
            self._made[name] = user
            users.assign_project_role_to_user(
                users.find_project(project), user, users.find_role(role)
            )
        return name

    def on_the_system(self) -> str:
        """Return the name of a user who is admin of the whole cloud, and of no project."""
        name = "test-system-admin"
        if name not in self._made:
            users = self.admin.identity
            user = users.create_user(name=name, password=self.password, domain_id=DOMAIN)
            self._made[name] = user
            users.assign_system_role_to_user(user, users.find_role("admin"), "all")
        return name

    def token(self, name: str, **scope: Any) -> str:
        if not scope:
            project = name.rpartition("-of-")[2]
            scope = {"project_name": project, "project_domain_id": DOMAIN}
        auth = identity.V3Password(
            settings.KEYSTONE_URL,
            username=name,
            password=self.password,
            user_domain_id=DOMAIN,
            **scope,
        )
        return Session(auth).get_token()

    def go(self) -> None:
        for user in self._made.values():
            self.admin.identity.delete_user(user)


@pytest.fixture(scope="module")
def people(admin: Connection) -> Iterator[People]:
    made = People(admin)
    yield made
    made.go()


def ask(token: str | None, method: str, path: str, body: Any = None, url: str = gsaas.URL) -> Any:
    headers = {} if token is None else {"X-Auth-Token": token}
    return requests.request(method, url + path, json=body, headers=headers, timeout=60)


# Who may do what


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("reader", [200, 403, 403]),
        ("member", [200, 200, 403]),
        ("manager", [200, 200, 403]),
        ("admin", [200, 200, 200]),
        ("service", [200, 403, 403]),
    ],
)
def test_keystones_roles_are_gsaas_personas(people: People, role: str, expected: list[int]):
    token = people.token(people.with_role(role))
    answers = [
        ask(token, "GET", "/v1/leases"),
        ask(token, "POST", "/v1/checks", {"check": CGPU}),
        ask(token, "GET", "/v1/endpoints"),
    ]
    assert [answer.status_code for answer in answers] == expected


def test_without_a_token_the_answer_names_keystone(cloud: None):
    for token in (None, "not-a-token"):
        answer = ask(token, "GET", "/v1/leases")
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == f'Keystone uri="{settings.KEYSTONE_URL}"'


@pytest.mark.parametrize("scope", [{"system_scope": "all"}, {"unscoped": True}], ids=str)
def test_a_token_for_no_project_is_told_so(people: People, scope: dict[str, Any]):
    token = people.token(people.on_the_system(), **scope)
    answer = ask(token, "GET", "/v1/leases")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (
        403,
        "gsaas.forbidden.no-project",
    )


def test_a_users_own_token_is_no_service_token(people: People):
    reader = people.token(people.with_role("reader"))
    headers = {"X-Auth-Token": reader, "X-Service-Token": reader}
    assert requests.get(f"{gsaas.URL}/v1/leases", headers=headers, timeout=60).status_code == 401
    headers["X-Service-Token"] = people.token(people.with_role("service"))
    assert requests.get(f"{gsaas.URL}/v1/leases", headers=headers, timeout=60).status_code == 200


# Quotas


@dataclass
class Region:
    """A GSaaS of the test's own, in a region of its own."""

    url: str
    configuration: Path

    def register(self) -> list[str]:
        """Run `gsaas-manage limits register` as the cloud's admin; return what it says."""
        done = subprocess.run(
            [gsaas.program("gsaas-manage"), "--config-file", self.configuration]
            + ["limits", "register"],
            env={**os.environ, **environment("admin")},
            capture_output=True,
            text=True,
            check=True,
        )
        return [line for line in done.stdout.splitlines() if REGION in line]


@pytest.fixture(scope="module")
def region(admin: Connection, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Region]:
    folder = tmp_path_factory.mktemp("region")
    with socket.socket() as taken:
        taken.bind((settings.ADDRESS, 0))
        port = taken.getsockname()[1]
    made = Region(f"http://{settings.ADDRESS}:{port}", folder / "gsaas.conf")
    made.configuration.write_text(_configuration(folder), encoding="utf-8")
    url = f"sqlite:///{folder}/gsaas.db"
    migration.upgrade(url)
    database = Database.open(url)
    fill(database)
    database.close()

    service = next(iter(admin.identity.services(type=gsaas.SERVICE_TYPE)))
    admin.identity.create_region(id=REGION)
    endpoint = admin.identity.create_endpoint(
        service_id=service.id, interface="public", region_id=REGION, url=made.url
    )
    files = os.pathsep.join([str(gsaas.CONTROLLER), str(made.configuration)])
    with (folder / "log").open("wb") as log:
        api = subprocess.Popen(
            [gsaas.program("gunicorn"), "--preload", "--workers=2", "--threads=4"]
            + [f"--bind={settings.ADDRESS}:{port}", "gsaas.wsgi.api:application"],
            env={**os.environ, "GSAAS_CONFIG_FILES": files},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _await(made.url, api, folder / "log")
        yield made
    finally:
        api.terminate()
        api.wait(60)
        for limit in admin.identity.limits(service_id=service.id):
            if limit.region_id == REGION:
                admin.identity.delete_limit(limit)
        for limit in list(admin.identity.registered_limits(service_id=service.id)):
            admin.identity.delete_registered_limit(limit)
        admin.identity.delete_endpoint(endpoint)
        admin.identity.delete_region(REGION)


def _configuration(folder: Path) -> str:
    """What differs from the configuration of the cloud's own GSaaS."""
    user = keystone.client("admin") | {"project_name": "admin"}
    asks = "\n".join(f"{key} = {value}" for key, value in user.items())
    return f"""
[DEFAULT]
transport_url = in-process://
[database]
connection = sqlite:///{folder}/gsaas.db
[gpgpums]
heartbeat_timeout = 86400
[quotas]
driver = oslo_limit
cgpus = 10
gpu_memory_mb = -1
leases = 5
[oslo_limit]
endpoint_region_name = {REGION}
endpoint_interface = public
{asks}
"""


def _await(url: str, api: subprocess.Popen, log: Path) -> None:
    """Return once the API listens; gunicorn does so when it is loaded."""
    session = requests.Session()
    retries = requests.adapters.Retry(total=60, backoff_factor=0.1, backoff_max=1)
    session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
    try:
        session.get(f"{url}/healthcheck", timeout=60)
    except requests.ConnectionError:
        assert api.poll() is None, log.read_text()
        raise


def test_limits_are_keystones_and_an_operator_may_set_them(
    admin: Connection, people: People, region: Region
):
    names = ("cgpus", "gpu_memory_mb", "leases")
    assert [line.endswith("registered") for line in region.register()] == [True] * 3
    assert [line.endswith("there already") for line in region.register()] == [True] * 3

    token = people.token(people.with_role("member"))
    answer = ask(token, "GET", "/v1/limits", url=region.url)
    limits = answer.json()["limits"]
    assert [limits[name]["limit"] for name in names] == [10, -1, 5]

    service = next(iter(admin.identity.services(type=gsaas.SERVICE_TYPE)))
    admin.identity.create_limit(
        service_id=service.id,
        region_id=REGION,
        project_id=admin.identity.find_project(TENANT).id,
        resource_name="cgpus",
        resource_limit=0,
    )
    limits = ask(token, "GET", "/v1/limits", url=region.url).json()["limits"]
    assert limits["cgpus"] == {"limit": 0, "used": 0}
    other = people.token(people.with_role("member", settings.TENANTS[1]))
    limits = ask(other, "GET", "/v1/limits", url=region.url).json()["limits"]
    assert limits["cgpus"] == {"limit": 10, "used": 0}

    launch = {"lease": {"cgpus": CGPU}}
    with ThreadPoolExecutor(4) as pool:
        answers = list(
            pool.map(lambda _: ask(token, "POST", "/v1/leases", launch, url=region.url), range(8))
        )
    assert {answer.status_code for answer in answers} == {403}
    (error,) = answers[0].json()["errors"]
    assert error["code"] == "gsaas.quota.exceeded"
    assert error["gsaas"]["quotas"] == [{"name": "cgpus", "used": 0, "asked": 1, "limit": 0}]


# A client's ways in


def environment(user: str) -> dict[str, str]:
    """The variables of *user*'s openrc."""
    script = f". {credentials.openrc(user)}; env -0"
    done = subprocess.run(["/bin/sh", "-c", script], env={}, capture_output=True, check=True)
    pairs = (entry.split("=", 1) for entry in done.stdout.decode().split("\0") if entry)
    return {name: value for name, value in pairs if name.startswith("OS_")}


def run(variables: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [gsaas.program("gsaas"), *words],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def read(variables: dict[str, str], *words: str) -> Any:
    done = run(variables, *words, "-f=json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_openrc_and_a_clouds_yaml_are_the_same_person(cloud: None):
    by_name = {"OS_CLIENT_CONFIG_FILE": str(credentials.CLOUDS), "OS_CLOUD": TENANT}
    assert read(environment(TENANT), "limits") == read(by_name, "limits")


def test_an_application_credential_of_a_tenant_does(tenant: Connection):
    user = tenant.current_user_id
    made = tenant.identity.create_application_credential(user, name="test-gsaas")
    try:
        variables = {
            "OS_AUTH_URL": settings.KEYSTONE_URL,
            "OS_AUTH_TYPE": "v3applicationcredential",
            "OS_APPLICATION_CREDENTIAL_ID": made.id,
            "OS_APPLICATION_CREDENTIAL_SECRET": made.secret,
            "OS_REGION_NAME": settings.REGION,
        }
        assert read(variables, "limits") == read(environment(TENANT), "limits")
    finally:
        tenant.identity.delete_application_credential(user, made)


def test_a_wrong_password_and_an_unknown_region_are_told_apart(cloud: None):
    said = run(environment(TENANT) | {"OS_PASSWORD": "wrong"}, "list").stderr
    assert "does not accept your credentials" in said
    said = run(environment(TENANT) | {"OS_REGION_NAME": "Nowhere"}, "list").stderr
    assert "no public endpoint of type gpu-scheduling in region Nowhere" in said


@pytest.fixture
def tenants_client(cloud: None, monkeypatch: pytest.MonkeyPatch) -> Client:
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)
    for name, value in environment(TENANT).items():
        monkeypatch.setenv(name, value)
    return Client(find_credentials(os.environ))


def test_names_stand_for_what_the_tenant_sees_under_them(
    tenants_client: Client, tenant: Connection
):
    image = tenant.image.find_image(settings.IMAGE).id
    assert tenants_client.resolve("image", settings.IMAGE) == image
    assert tenants_client.resolve("image", image) == image
    flavor = tenant.compute.find_flavor(settings.FLAVOR).id
    assert tenants_client.resolve("flavor", settings.FLAVOR) == flavor
    network = tenant.network.find_network(settings.NETWORK).id
    assert tenants_client.resolve("network", settings.NETWORK) == network


@pytest.mark.parametrize("noun", ["image", "flavor", "network"])
def test_a_name_that_is_nothings_is_said_so(tenants_client: Client, noun: str):
    with pytest.raises(ClientError, match=f"there is no {noun} nothing-of-this-name"):
        tenants_client.resolve(noun, "nothing-of-this-name")


def test_a_name_of_several_is_said_so(tenants_client: Client, tenant: Connection):
    made = [tenant.network.create_network(name="test-twice") for _ in range(2)]
    try:
        with pytest.raises(ClientError, match="several networks are named test-twice"):
            tenants_client.resolve("network", "test-twice")
    finally:
        for network in made:
            tenant.network.delete_network(network)
