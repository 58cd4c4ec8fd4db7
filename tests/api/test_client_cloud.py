"""`gsaas` with Keystone's credentials: found where other OpenStack clients find them, and refused in a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import gsaas.conf
from gsaas.api.keystone import Keystone
from gsaas.cli import main
from tests.api.server import serving
from tests.api.test_keystone import SETTINGS
from tests.api.world import World
from tests.support import certificates
from tests.support import keystone as double


class Office:
    """A cloud with GSaaS in it, and somebody who types."""

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
def office(tmp_path, capsys, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("OS_", "GSAAS_"))]:
        monkeypatch.delenv(name)
    with double.running() as keystone:
        yield from _office(keystone, tmp_path, capsys, monkeypatch)


def _office(keystone: double.Keystone, tmp_path, capsys, monkeypatch):
    path = tmp_path / "keystone.conf"
    path.write_text(SETTINGS.format(url=keystone.url), encoding="utf-8")
    world = World.build(tmp_path, authenticate=Keystone(gsaas.conf.load(files=[str(path)])))
    with serving(world.app) as url:
        public = {"type": "gpu-scheduling", "interface": "public", "region": "R", "url": url}
        keystone.endpoints.append(public)
        keystone.give_out("first", roles=["member", "reader"])
        keystone.enrol("ada", "lovelace", ["first"])
        made = Office(keystone, world, url, capsys, monkeypatch)
        made.set(
            OS_AUTH_URL=keystone.url,
            OS_USERNAME="ada",
            OS_PASSWORD="lovelace",
            OS_PROJECT_NAME="blue",
            OS_USER_DOMAIN_NAME="D",
            OS_PROJECT_DOMAIN_NAME="D",
            OS_CLIENT_CONFIG_FILE=str(tmp_path / "clouds.yaml"),
        )
        yield made
    world.database.close()


def test_the_os_variables_are_enough(office):
    assert office.read("list") == []
    assert office.keystone.sign_ins[-1] == "ada"


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


def test_os_cloud_names_an_entry_of_clouds_yaml_and_goes_before_who_else_is_named(office, tmp_path):
    write_clouds_yaml(tmp_path, office.keystone.url)
    office.keystone.give_out("second", roles=["member", "reader"], project="red")
    office.keystone.enrol("grace", "hopper", ["second"])
    office.set(OS_CLOUD="here")
    office.read("list")
    assert office.keystone.sign_ins[-1] == "grace"
    office.set(OS_REGION_NAME="elsewhere")
    assert "Region elsewhere" in office.refused("list")


def test_an_application_credential_does_as_well_as_a_password(office):
    office.keystone.enrol("credential-1", "its secret", ["first"])
    office.set(
        OS_USERNAME=None,
        OS_PASSWORD=None,
        OS_PROJECT_NAME=None,
        OS_USER_DOMAIN_NAME=None,
        OS_PROJECT_DOMAIN_NAME=None,
        OS_AUTH_TYPE="v3applicationcredential",
        OS_APPLICATION_CREDENTIAL_ID="credential-1",
        OS_APPLICATION_CREDENTIAL_SECRET="its secret",
    )
    office.read("list")
    assert office.keystone.sign_ins[-1] == "credential-1"


def test_a_file_of_our_own_goes_before_keystone(office, tmp_path):
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"url": office.url, "token": "first"}))
    path.chmod(0o600)
    office.set(GSAAS_CREDENTIALS=str(path))
    office.read("list")
    assert "ada" not in office.keystone.sign_ins


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_the_catalogue_may_or_may_not_name_the_version(office, end):
    office.keystone.endpoints[0]["url"] = office.url + end
    assert office.read("list") == []


def test_region_and_interface_choose_among_endpoints(office):
    nowhere = {"type": "gpu-scheduling", "url": "http://127.0.0.1:1"}
    office.keystone.endpoints += [
        nowhere | {"interface": "public", "region": "A"},
        nowhere | {"interface": "internal", "region": "R"},
    ]
    office.set(OS_REGION_NAME="R", OS_INTERFACE="public")
    assert office.read("list") == []
    office.set(OS_REGION_NAME="A")
    assert "http://127.0.0.1:1 does not answer: Connection refused" in office.refused("list")
    office.set(OS_REGION_NAME="R", OS_INTERFACE="internal")
    assert "http://127.0.0.1:1 does not answer: Connection refused" in office.refused("list")


def test_an_endpoint_may_be_given_by_hand(office):
    office.keystone.endpoints.clear()
    office.set(OS_GPU_SCHEDULING_ENDPOINT_OVERRIDE=f"{office.url}/v1")
    assert office.read("list") == []


def test_a_token_that_ends_in_the_middle_is_replaced(office):
    office.keystone.give_out("short", roles=["member", "reader"])
    office.keystone.enrol("ada", "lovelace", ["short", "first"])
    lease = office.read("-l", "-ncgpus=1", "-nowait")
    office.keystone.enrol("ada", "lovelace", ["gone", "first"])
    office.keystone.give_out("gone", roles=["member", "reader"], lives=-1)
    assert office.read("show", lease["id"])["id"] == lease["id"]


def test_a_region_without_gsaas_is_said_so(office):
    office.set(OS_REGION_NAME="Elsewhere")
    said = office.refused("list")
    assert "no public endpoint of type gpu-scheduling in region Elsewhere" in said
    assert "OS_REGION_NAME" in said


def test_credentials_that_keystone_refuses_are_told_with_its_own_words(office):
    office.keystone.refusal = "The password is expired and needs to be changed for user: 42."
    office.set(OS_PASSWORD="babbage")
    said = office.refused("list")
    assert f"Keystone at {office.keystone.url} does not accept your credentials" in said
    assert "The password is expired" in said


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"OS_AUTH_URL": "http://127.0.0.1:1/v3"}, "does not answer: Connection refused"),
        ({"OS_PASSWORD": None}, "not complete: password"),
        ({"OS_CLOUD": "missing"}, "Cloud missing was not found"),
        ({"OS_AUTH_TYPE": "magic"}, "magic"),
    ],
    ids=["nobody listens", "no password", "no such cloud", "no such plug-in"],
)
def test_what_is_wrong_with_the_variables_is_one_sentence(office, variables, told):
    office.set(**variables)
    said = office.refused("list")
    assert told in said
    assert said.count("\n") == 1


def test_credentials_for_no_project_are_said_so(office):
    office.keystone.give_out("unscoped", roles=[], project=None)
    office.keystone.enrol("ada", "lovelace", ["unscoped"])
    assert "gsaas: this needs a token for a project" in office.refused("list")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return certificates.self_signed(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def secure_office(certificate, tmp_path, capsys, monkeypatch):
    """The same, with a Keystone that speaks TLS."""
    for name in [name for name in os.environ if name.startswith(("OS_", "GSAAS_"))]:
        monkeypatch.delenv(name)
    with double.running(certificate) as keystone, double.running() as for_the_service:
        keystone.url, own = for_the_service.url, keystone.url
        for made in _office(keystone, tmp_path, capsys, monkeypatch):
            keystone.url = own
            made.set(OS_AUTH_URL=own)
            yield made


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(secure_office):
    said = secure_office.refused("list")
    assert "self-signed certificate" in said or "self signed certificate" in said
    assert "OS_CACERT" in said


def test_the_authority_that_os_cacert_names_is_trusted(secure_office, certificate):
    secure_office.set(OS_CACERT=certificate[0])
    secure_office.keystone.checked.clear()
    secure_office.type("list")
    assert secure_office.keystone.sign_ins[-1] == "ada"


def test_os_cacert_goes_before_what_clouds_yaml_says(secure_office, certificate, tmp_path):
    write_clouds_yaml(tmp_path, secure_office.keystone.url, cacert="/nowhere/ca.pem")
    secure_office.keystone.give_out("second", roles=["member", "reader"], project="red")
    secure_office.keystone.enrol("grace", "hopper", ["second"])
    secure_office.set(OS_CLOUD="here", OS_CACERT=certificate[0])
    secure_office.type("list")
    assert secure_office.keystone.sign_ins[-1] == "grace"


def test_a_missing_ca_file_is_named(secure_office):
    secure_office.set(OS_CACERT="/nowhere/ca.pem")
    assert "/nowhere/ca.pem" in secure_office.refused("list")


def test_without_os_variables_the_openstack_sdk_is_not_even_loaded():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from gsaas.cli.main import main; main(['list']);"
            "sys.exit('openstack' in sys.modules or 'keystoneauth1' in sys.modules)",
        ],
        env={"GSAAS_CREDENTIALS": "/nowhere"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
