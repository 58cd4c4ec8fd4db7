# SPDX-License-Identifier: Apache-2.0
"""What `gsaas-manage setup controller` makes in a real Keystone, where there is nothing of GSaaS or something else."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from openstack.connection import Connection

from gsaas.setup import answers, services, texts
from gsaas.setup.answers import Controller
from gsaas.setup.machine import LeftToDo, State
from gsaas.setup.services import KeystoneEntries
from tests.openstack.bed import credentials, keystone, settings

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(1800)]

NAME, KIND = "gsaas-made-by-setup", "gpu-scheduling-made-by-setup"
"""Of this test's own, beside the GSaaS of the cloud."""
GIVEN = {
    "url": "https://gpu.example.org",
    "auth_url": settings.KEYSTONE_URL,
    "bus": "controller",
    "gpu_network": "192.0.2.0/24",
    "region": settings.REGION,
    "service_project": keystone.SERVICE_PROJECT,
}


@pytest.fixture
def wanted(admin: Connection, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeystoneEntries]:
    monkeypatch.setattr(texts, "ACCOUNT", NAME)
    monkeypatch.setattr(services, "SERVICE_TYPE", KIND)
    yield entries(answers.read(Controller, GIVEN, "here", secrets.token_urlsafe))
    for service in admin.identity.services(type=KIND):
        admin.identity.delete_service(service)
    if user := admin.identity.find_user(NAME):
        admin.identity.delete_user(user)


@pytest.fixture
def as_administrator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(credentials.CLOUDS))
    monkeypatch.setenv("OS_CLOUD", "admin")


def entries(answers: Controller, **others: Any) -> KeystoneEntries:
    """The entries for these answers, but for *others*."""
    found = replace(answers, **others)
    return KeystoneEntries(texts.of_controller(found), found)


def test_what_is_missing_is_made_and_what_differs_is_corrected(
    wanted: KeystoneEntries, as_administrator: None
):
    assert wanted.state() is State.MISSING
    wanted.make()
    assert wanted.state() is State.RIGHT

    moved = entries(wanted.answers, internal_url="http://internal.example.org")
    assert moved.state() is State.DIFFERENT
    moved.make()
    assert moved.state() is State.RIGHT


def test_the_password_of_a_user_that_is_there_stays(
    wanted: KeystoneEntries, as_administrator: None
):
    wanted.make()
    other = entries(wanted.answers, keystone_password=secrets.token_urlsafe())
    assert other.state() is State.MISSING
    with pytest.raises(LeftToDo, match="if another controller has made the account"):
        other.make()
    assert wanted.state() is State.RIGHT


def test_without_an_administrator_it_says_what_to_type(
    wanted: KeystoneEntries, monkeypatch: pytest.MonkeyPatch
):
    for name in ("OS_CLOUD", "OS_AUTH_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(LeftToDo) as left:
        wanted.make()
    create = f"openstack user create --domain default --password PASSWORD {NAME}"
    assert create in left.value.commands
    assert wanted.answers.keystone_password not in str(left.value.commands)
