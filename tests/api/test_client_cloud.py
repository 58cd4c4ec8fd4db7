# SPDX-License-Identifier: Apache-2.0
"""`gsaas` with Keystone's credentials: found where other OpenStack clients find them, and refused in a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import gsaas.conf
from gsaas.api.keystone import Keystone
from gsaasclient import credentials
from gsaasclient.cli import main
from tests.api.server import serving
from tests.api.test_keystone import SETTINGS
from tests.api.world import World
from tests.support import certificates
from tests.support import keystone as double


class CloudUser:
    """A user of a cloud with GSaaS, who runs `gsaas` with Keystone's credentials."""

    def __init__(self, keystone: double.Keystone, world: World, url: str, capsys, monkeypatch):
        self.keystone = keystone
        self.world = world
        self.url = url
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def set(self, **variables: str | None) -> None:
        for name, value in variables.items():
            if value is None:
                self._monkeypatch.delenv(name, raising=False)
            else:
                self._monkeypatch.setenv(name, value)

    def type(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        status = main.main(words)
        output = self._capsys.readouterr()
        return status, output.out, output.err

    def read(self, *words: str):
        status, out, err = self.type(*words, "-f", "json")
        assert status == 0, err
        return json.loads(out)

    def refused(self, *words: str) -> str:
        status, out, err = self.type(*words)
        assert (status, out) == (1, "")
        assert err.startswith("gsaas: ")
        assert "unexpected" not in err
        return err


@pytest.fixture
def user(tmp_path, capsys, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("OS_", "GSAAS_"))]:
        monkeypatch.delenv(name)
    with double.running() as keystone:
        yield from _user(keystone, tmp_path, capsys, monkeypatch)


def _user(keystone: double.Keystone, tmp_path, capsys, monkeypatch):
    path = tmp_path / "keystone.conf"
    # A token that is revoked shall be refused at once.
    settings = SETTINGS.format(url=keystone.url) + "token_cache_time = -1\n"
    path.write_text(settings, encoding="utf-8")
    world = World.build(tmp_path, authenticate=Keystone(gsaas.conf.load(files=[str(path)])))
    with serving(world.app) as url:
        public = {"type": "gpu-scheduling", "interface": "public", "region": "R", "url": url}
        keystone.endpoints.append(public)
        keystone.give_out("first", roles=["member", "reader"])
        keystone.enrol("ada", "lovelace", ["first"])
        user = CloudUser(keystone, world, url, capsys, monkeypatch)
        user.set(
            OS_AUTH_URL=keystone.url,
            OS_USERNAME="ada",
            OS_PASSWORD="lovelace",
            OS_PROJECT_NAME="blue",
            OS_USER_DOMAIN_NAME="D",
            OS_PROJECT_DOMAIN_NAME="D",
            OS_CLIENT_CONFIG_FILE=str(tmp_path / "clouds.yaml"),
            XDG_CACHE_HOME=str(tmp_path / "cache"),
        )
        yield user
    world.database.close()


def test_the_os_variables_are_enough(user):
    assert user.read("list") == []
    assert user.keystone.sign_ins[-1] == "ada"


def write_clouds_yaml(folder, auth_url: str, **more: str) -> None:
    """A cloud called `here`, as grace in the project red."""
    cloud = {
        "auth": {
            "auth_url": auth_url,
            "username": "grace",
            "password": "hopper",
            "project_name": "red",
            "user_domain_name": "D",
            "project_domain_name": "D",
        },
        "region_name": "R",
        **more,
    }
    (folder / "clouds.yaml").write_text(json.dumps({"clouds": {"here": cloud}}))


def test_os_cloud_names_an_entry_of_clouds_yaml_and_overrides_the_other_variables(user, tmp_path):
    write_clouds_yaml(tmp_path, user.keystone.url)
    user.keystone.give_out("second", roles=["member", "reader"], project="red")
    user.keystone.enrol("grace", "hopper", ["second"])
    user.set(OS_CLOUD="here")
    user.read("list")
    assert user.keystone.sign_ins[-1] == "grace"
    user.set(OS_REGION_NAME="elsewhere")
    assert "Region elsewhere" in user.refused("list")


def test_an_application_credential_does_as_well_as_a_password(user):
    user.keystone.enrol("credential-1", "its secret", ["first"])
    user.set(
        OS_USERNAME=None,
        OS_PASSWORD=None,
        OS_PROJECT_NAME=None,
        OS_USER_DOMAIN_NAME=None,
        OS_PROJECT_DOMAIN_NAME=None,
        OS_AUTH_TYPE="v3applicationcredential",
        OS_APPLICATION_CREDENTIAL_ID="credential-1",
        OS_APPLICATION_CREDENTIAL_SECRET="its secret",
    )
    user.read("list")
    assert user.keystone.sign_ins[-1] == "credential-1"


def test_a_file_of_credentials_is_used_before_keystone(user, tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"url": user.url, "token": "first"}))
    path.chmod(0o600)
    user.set(GSAAS_CREDENTIALS=str(path))
    assert user.type("list")[2] == "note: GSAAS_CREDENTIALS is used, and not the OS_ variables\n"
    assert "ada" not in user.keystone.sign_ins


def test_who_has_no_credentials_is_told_of_the_clouds_in_clouds_yaml(tmp_path, capsys, monkeypatch):
    for name in ("GSAAS_CREDENTIALS", "OS_CLOUD", "OS_AUTH_URL", "OS_CLIENT_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(credentials, "DEFAULT_CREDENTIALS", str(tmp_path / "none.json"))
    monkeypatch.chdir(tmp_path)
    assert main.main(["list"]) == 1
    assert "name a cloud with OS_CLOUD" in capsys.readouterr().err
    (tmp_path / "clouds.yaml").write_text("clouds: {mine: {}, other: {}}\n")
    assert main.main(["list"]) == 1
    said = capsys.readouterr().err
    assert (
        "name a cloud with OS_CLOUD, one of mine, other, or a file with GSAAS_CREDENTIALS" in said
    )


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_the_catalogue_may_or_may_not_name_the_version(user, end):
    user.keystone.endpoints[0]["url"] = user.url + end
    assert user.read("list") == []


def test_region_and_interface_choose_among_endpoints(user):
    nowhere = {"type": "gpu-scheduling", "url": "http://127.0.0.1:1"}
    user.keystone.endpoints += [
        nowhere | {"interface": "public", "region": "A"},
        nowhere | {"interface": "internal", "region": "R"},
    ]
    user.set(OS_REGION_NAME="R", OS_INTERFACE="public")
    assert user.read("list") == []
    user.set(OS_REGION_NAME="A")
    assert "http://127.0.0.1:1 does not answer: Connection refused" in user.refused("list")
    user.set(OS_REGION_NAME="R", OS_INTERFACE="internal")
    assert "http://127.0.0.1:1 does not answer: Connection refused" in user.refused("list")


def test_the_endpoint_can_be_configured(user):
    user.keystone.endpoints.clear()
    user.set(OS_GPU_SCHEDULING_ENDPOINT_OVERRIDE=f"{user.url}/v1")
    assert user.read("list") == []


def test_a_token_that_expires_is_replaced(user):
    user.keystone.give_out("short", roles=["member", "reader"])
    user.keystone.enrol("ada", "lovelace", ["short", "first"])
    lease = user.read("-l", "-ncgpus=1", "-nowait")
    user.keystone.enrol("ada", "lovelace", ["gone", "first"])
    user.keystone.give_out("gone", roles=["member", "reader"], lives=-1)
    assert user.read("show", lease["id"])["id"] == lease["id"]


def test_a_region_without_gsaas_is_named(user):
    user.set(OS_REGION_NAME="Elsewhere")
    error = user.refused("list")
    assert "no public endpoint of type gpu-scheduling in region Elsewhere" in error
    assert "OS_REGION_NAME" in error


def test_credentials_that_keystone_refuses_are_explained_by_its_message(user):
    user.keystone.refusal = "The password is expired and needs to be changed for user: 42."
    user.set(OS_PASSWORD="babbage")
    error = user.refused("list")
    assert f"Keystone at {user.keystone.url} does not accept your credentials" in error
    assert "The password is expired" in error


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"OS_AUTH_URL": "http://127.0.0.1:1/v3"}, "does not answer: Connection refused"),
        ({"OS_PASSWORD": None}, "not complete: password"),
        ({"OS_CLOUD": "missing"}, "Cloud missing was not found"),
        ({"OS_AUTH_TYPE": "magic"}, "magic"),
    ],
    ids=["no listener", "no password", "no such cloud", "no such plug-in"],
)
def test_invalid_variables_are_explained_in_one_sentence(user, variables, message):
    user.set(**variables)
    error = user.refused("list")
    assert message in error
    assert error.count("\n") == 1


def test_credentials_without_a_project_are_refused(user):
    user.keystone.give_out("unscoped", roles=[], project=None)
    user.keystone.enrol("ada", "lovelace", ["unscoped"])
    assert "gsaas: this needs a token for a project" in user.refused("list")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return certificates.self_signed(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def tls_user(certificate, tmp_path, capsys, monkeypatch):
    """The same, with a Keystone that speaks TLS."""
    for name in [name for name in os.environ if name.startswith(("OS_", "GSAAS_"))]:
        monkeypatch.delenv(name)
    with double.running(certificate) as keystone, double.running() as for_the_service:
        keystone.url, own = for_the_service.url, keystone.url
        for user in _user(keystone, tmp_path, capsys, monkeypatch):
            keystone.url = own
            user.set(OS_AUTH_URL=own)
            yield user


def test_a_certificate_of_an_unknown_authority_is_not_trusted(tls_user):
    error = tls_user.refused("list")
    assert "self-signed certificate" in error or "self signed certificate" in error
    assert "OS_CACERT" in error


def test_the_authority_that_os_cacert_names_is_trusted(tls_user, certificate):
    tls_user.set(OS_CACERT=certificate[0])
    tls_user.keystone.checked.clear()
    tls_user.type("list")
    assert tls_user.keystone.sign_ins[-1] == "ada"


def test_os_cacert_overrides_clouds_yaml(tls_user, certificate, tmp_path):
    write_clouds_yaml(tmp_path, tls_user.keystone.url, cacert="/nowhere/ca.pem")
    tls_user.keystone.give_out("second", roles=["member", "reader"], project="red")
    tls_user.keystone.enrol("grace", "hopper", ["second"])
    tls_user.set(OS_CLOUD="here", OS_CACERT=certificate[0])
    tls_user.type("list")
    assert tls_user.keystone.sign_ins[-1] == "grace"


def test_a_missing_ca_file_is_named(tls_user):
    tls_user.set(OS_CACERT="/nowhere/ca.pem")
    assert "/nowhere/ca.pem" in tls_user.refused("list")


def test_without_os_variables_the_openstack_sdk_is_not_even_loaded():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from gsaasclient.cli.main import main; main(['list']);"
            "sys.exit('openstack' in sys.modules or 'keystoneauth1' in sys.modules)",
        ],
        env={"GSAAS_CREDENTIALS": "/nowhere"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
