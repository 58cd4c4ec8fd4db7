# SPDX-License-Identifier: Apache-2.0
"""The check of Keystone finds what works, and names what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

import gsaas.conf
from gsaas.checkup import identity
from gsaas.checkup.findings import Level
from tests.support import keystone

USER = """
[keystone_authtoken]
auth_type = password
auth_url = {url}
username = gsaas
password = {password}
project_name = service
user_domain_name = D
project_domain_name = D
"""


@pytest.fixture
def server():
    with keystone.running() as made:
        yield made


@pytest.fixture
def check(tmp_path: Path):
    def check(settings: str) -> dict[str, tuple[Level, str]]:
        path = tmp_path / "gsaas.conf"
        path.write_text(settings)
        found = list(identity.check(gsaas.conf.load(files=[str(path)])))
        return {finding.part: (finding.level, finding.said) for finding in found}

    return check


def test_a_service_with_a_user_and_an_endpoint_is_ok(server, check):
    server.endpoints.append(
        {"type": "gpu-scheduling", "interface": "public", "region": "R", "url": server.url}
    )
    found = check(USER.format(url=server.url, password=keystone.PASSWORD))
    assert found["Keystone"][0] is Level.OK
    assert found["catalogue"] == (Level.OK, f"clients find the API at {server.url}")
    assert found["API"][0] is Level.WARN  # it is Keystone that answers at this address
    assert "HTTP status 404" in found["API"][1]


def test_a_service_without_an_endpoint_is_a_failure(server, check):
    found = check(USER.format(url=server.url, password=keystone.PASSWORD))
    assert found["catalogue"][0] is Level.FAIL


def test_a_wrong_password_is_reported_in_keystones_words_without_the_password(server, check):
    ((part, (level, said)),) = check(USER.format(url=server.url, password="wrong")).items()
    assert (part, level) == ("Keystone", Level.FAIL)
    assert "requires authentication" in said
    assert "wrong" not in said


def test_a_keystone_that_does_not_run_is_reported_in_two_words(check):
    settings = USER.format(url="http://127.0.0.1:1/v3", password="secret")
    ((part, (level, said)),) = check(settings).items()
    assert (part, level) == ("Keystone", Level.FAIL)
    assert said.endswith("Connection refused")


def test_a_section_without_auth_type_is_named(check):
    ((_, (level, said)),) = check("").items()
    assert (level, said) == (Level.FAIL, "[keystone_authtoken] has no auth_type")
