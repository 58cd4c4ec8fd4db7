"""What a check-up learns of Keystone, and what it says when there is nothing to learn."""

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
def look(tmp_path: Path):
    def look(settings: str) -> dict[str, tuple[Level, str]]:
        path = tmp_path / "gsaas.conf"
        path.write_text(settings)
        found = list(identity.look(gsaas.conf.load(files=[str(path)])))
        return {finding.part: (finding.level, finding.said) for finding in found}

    return look


def test_a_service_that_keystone_knows_and_the_catalogue_has_is_well(server, look):
    server.endpoints.append(
        {"type": "gpu-scheduling", "interface": "public", "region": "R", "url": server.url}
    )
    found = look(USER.format(url=server.url, password=keystone.PASSWORD))
    assert found["Keystone"][0] is Level.OK
    assert found["catalogue"] == (Level.OK, f"clients find us at {server.url}")
    assert found["API"][0] is Level.WARN  # it is Keystone that answers at this address
    assert "HTTP status 404" in found["API"][1]


def test_a_service_without_an_endpoint_is_found_by_nobody(server, look):
    found = look(USER.format(url=server.url, password=keystone.PASSWORD))
    assert found["catalogue"][0] is Level.FAIL


def test_a_wrong_password_is_told_in_keystones_words_and_without_the_password(server, look):
    ((part, (level, said)),) = look(USER.format(url=server.url, password="wrong")).items()
    assert (part, level) == ("Keystone", Level.FAIL)
    assert "requires authentication" in said
    assert "wrong" not in said


def test_a_keystone_that_is_not_there_is_told_in_two_words(look):
    settings = USER.format(url="http://127.0.0.1:1/v3", password="secret")
    ((part, (level, said)),) = look(settings).items()
    assert (part, level) == ("Keystone", Level.FAIL)
    assert said.endswith("Connection refused")


def test_a_section_that_says_nothing_is_named(look):
    ((_, (level, said)),) = look("").items()
    assert (level, said) == (Level.FAIL, "[keystone_authtoken] has no auth_type")
