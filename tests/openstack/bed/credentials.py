# SPDX-License-Identifier: Apache-2.0
"""Credentials files for people and tests: `clouds.yaml`, and an openrc for each user."""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.openstack.bed import files
from tests.openstack.bed.settings import (
    DIR,
    KEYSTONE_URL,
    REGION,
    TENANT_OF_ENGINES,
    TENANTS,
    password,
)
from tests.openstack.bed.work import Unit

USERS = ("admin", *TENANTS, TENANT_OF_ENGINES)
"""Each is in the project of its own name."""
CLOUDS = DIR / "clouds.yaml"


def units() -> list[Unit]:
    return [Unit("credentials", prepare=write)]


def openrc(user: str) -> Path:
    """The file that a shell sources to be *user*."""
    return DIR / f"{user}-openrc"


def write() -> None:
    for user in USERS:
        variables = {
            "OS_AUTH_URL": KEYSTONE_URL,
            "OS_USERNAME": user,
            "OS_PASSWORD": password(user),
            "OS_PROJECT_NAME": user,
            "OS_USER_DOMAIN_NAME": "Default",
            "OS_PROJECT_DOMAIN_NAME": "Default",
            "OS_REGION_NAME": REGION,
            "OS_IDENTITY_API_VERSION": "3",
            "OS_INTERFACE": "public",
        }
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
        files.write(openrc(user), "unset OS_CLOUD\n" + "".join(lines))
    files.write(CLOUDS, "clouds:\n" + "".join(map(_entry, USERS)))


def _entry(user: str) -> str:
    return f"""\
  {user}:
    auth:
      auth_url: {KEYSTONE_URL}
      username: {user}
      password: "{password(user)}"
      project_name: {user}
      user_domain_name: Default
      project_domain_name: Default
    region_name: {REGION}
    interface: public
    identity_api_version: 3
"""
