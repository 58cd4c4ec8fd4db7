# SPDX-License-Identifier: Apache-2.0
"""The programs in C and in Python trust the same certificates, and a cached token is sent to no other server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.cached_tokens import ONE, Programs, rewrite, succeeds
from tests.api.cached_tokens import both as both
from tests.api.cached_tokens import files as files
from tests.api.test_client_cloud import CloudUser
from tests.api.test_client_cloud import certificate as certificate
from tests.api.test_client_cloud import user as user
from tests.support import certificates
from tests.support.tls_proxy import ending_tls

pytestmark = pytest.mark.slow


@pytest.fixture
def tls_user(user: CloudUser, certificate: tuple[str, str]) -> Iterator[CloudUser]:
    """The same, with an API that speaks TLS."""
    with ending_tls(user.url, certificate) as url:
        user.keystone.endpoints[0]["url"] = url
        user.set(OS_CACERT=certificate[0])
        yield user


def test_c_verifies_with_the_certificates_of_the_python_client(
    tls_user: CloudUser, both: Programs, files, certificate: tuple[str, str]
):
    tls_user.read("list")
    assert json.loads(files()[0].read_text())["bundle"] == certificate[0]
    succeeds(both.launcher)
    tls_user.read("list")
    assert (both.calls(), tls_user.keystone.sign_ins) == ([], ["ada"])


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_bundle_for_the_http_library_is_used_by_all(
    tls_user: CloudUser, both: Programs, certificate: tuple[str, str], variable: str
):
    unset = {"OS_CACERT": None, "REQUESTS_CA_BUNDLE": None, "CURL_CA_BUNDLE": None}
    tls_user.set(**unset | {variable: certificate[0]})
    tls_user.read("list")
    succeeds(both.launcher)
    assert both.calls() == []


def test_a_certificate_of_another_authority_gets_no_token(
    tls_user: CloudUser, both: Programs, files, tmp_path: Path
):
    tls_user.read("list")
    folder = tmp_path / "other"
    folder.mkdir()
    authority = certificates.self_signed(folder)[0]
    rewrite(files()[0], bundle=authority)
    tls_user.keystone.endpoints.clear()
    ran = both.launcher.run(*ONE, "true")
    assert (ran.returncode, both.calls()) == (125, ["run"])
    assert "no public endpoint" in ran.stderr  # what the catalogue says now


def test_one_of_many_authorities_is_enough(
    tls_user: CloudUser, both: Programs, certificate: tuple[str, str], tmp_path: Path
):
    own = Path(certificate[0]).read_text()
    others = [other_authority(tmp_path / str(number)) for number in range(3)]
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("some words\n" + "".join([*others[:2], own, *others[2:]]))
    tls_user.set(OS_CACERT=str(bundle))
    tls_user.read("list")
    both.calls()
    succeeds(both.launcher)
    assert both.calls() == []


def other_authority(folder: Path) -> str:
    folder.mkdir()
    return Path(certificates.self_signed(folder)[0]).read_text()


def test_a_bundle_that_has_changed_is_read_again(
    tls_user: CloudUser, both: Programs, certificate: tuple[str, str], tmp_path: Path
):
    bundle = tmp_path / "bundle.pem"
    shutil.copy(certificate[0], bundle)
    tls_user.set(OS_CACERT=str(bundle))
    tls_user.read("list")
    bundle.write_text(other_authority(tmp_path / "other"))
    ran = both.launcher.run(*ONE, "true")
    assert (ran.returncode, both.calls()) == (125, ["run"])
    assert "self-signed certificate" in ran.stderr
    assert "self-signed certificate" in tls_user.refused("list")


def test_a_connection_that_is_not_verified_is_left_to_python(
    tls_user: CloudUser, both: Programs, files
):
    tls_user.set(OS_CACERT=None, OS_INSECURE="true")
    tls_user.read("list")
    succeeds(both.launcher)
    assert (both.calls(), files()) == (["run"], [])


def test_a_file_of_credentials_with_https_is_served_by_c(
    user: CloudUser, both: Programs, certificate: tuple[str, str], tmp_path: Path
):
    path = tmp_path / "own.json"
    user.set(SSL_CERT_FILE=certificate[0], OS_CLOUD=None, OS_AUTH_URL=None)
    both.launcher.credentials = both.python.credentials = path
    both.launcher.environment = both.python.environment = {}
    with ending_tls(user.url, certificate) as url:
        both.launcher.use(url, "first")
        succeeds(both.launcher)
        succeeds(both.python)
        assert both.calls() == []
        user.set(SSL_CERT_FILE="/dev/null")
        for launcher in (both.launcher, both.python):
            ran = launcher.run(*ONE, "true")
            assert ran.returncode == 125
            assert "certificate verify failed" in ran.stderr
