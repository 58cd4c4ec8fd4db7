# SPDX-License-Identifier: Apache-2.0
"""What `gsaas-manage setup controller` makes in a real Keystone, where there is nothing of GSaaS or something else."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from openstack.connection import Connection

from gsaas import conf
from gsaas.setup import answers, services, texts
from gsaas.setup.answers import Controller
from gsaas.setup.machine import LeftToDo, State
from gsaas.setup.plan import KeystoneEntries
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
    new_secret = secrets.token_urlsafe
    yield KeystoneEntries(answers.read(Controller, GIVEN, "here", new_secret))
    for service in admin.identity.services(type=KIND):
        admin.identity.delete_service(service)
    if user := admin.identity.find_user(NAME):
        admin.identity.delete_user(user)


@pytest.fixture
def as_administrator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(credentials.CLOUDS))
    monkeypatch.setenv("OS_CLOUD", "admin")


def asked(step: KeystoneEntries, folder: Path) -> services.Keystone:
    """Keystone as the services of *step* would ask it."""
    path = folder / "gsaas.conf"
    path.write_text(texts.of_controller(step.answers))
    return services.Keystone(conf.load(files=[str(path)]))


def test_what_is_missing_is_made_and_what_differs_is_corrected(
    wanted: KeystoneEntries, as_administrator: None, tmp_path: Path
):
    assert asked(wanted, tmp_path).state(wanted) is State.MISSING
    asked(wanted, tmp_path).make(wanted)
    assert asked(wanted, tmp_path).state(wanted) is State.RIGHT

    moved = KeystoneEntries(replace(wanted.answers, internal_url="http://internal.example.org"))
    assert asked(moved, tmp_path).state(moved) is State.DIFFERENT
    asked(moved, tmp_path).make(moved)
    assert asked(moved, tmp_path).state(moved) is State.RIGHT

    changed = KeystoneEntries(replace(moved.answers, keystone_password=secrets.token_urlsafe()))
    assert asked(changed, tmp_path).state(changed) is State.MISSING
    asked(changed, tmp_path).make(changed)
    assert asked(changed, tmp_path).state(changed) is State.RIGHT


def test_without_an_administrator_it_says_what_to_type(
    wanted: KeystoneEntries, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    for name in ("OS_CLOUD", "OS_AUTH_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(LeftToDo) as left:
        asked(wanted, tmp_path).make(wanted)
    assert (
        f"openstack user create --domain default --password PASSWORD {NAME}" in left.value.commands
    )
    assert wanted.answers.keystone_password not in str(left.value.commands)
