# SPDX-License-Identifier: Apache-2.0
"""Keystone: users, projects, roles, and the catalogue of services."""

from __future__ import annotations

import base64
import secrets
from typing import Any

from tests.openstack.bed import cache, commands, database, files, rest, venv, wsgi
from tests.openstack.bed.once import once
from tests.openstack.bed.settings import (
    ADDRESS,
    ETC,
    KEYSTONE_PORT,
    KEYSTONE_URL,
    REGION,
    STATE,
    VERSION_LOCK,
    password,
)
from tests.openstack.bed.work import Unit

CONFIGURATION = ETC / "keystone" / "keystone.conf"
KEYS = STATE / "keystone"
SERVICE_PROJECT = "service"
SERVICE_ROLES = ("service", "admin")

DAEMON = wsgi.daemon(
    "keystone",
    KEYSTONE_PORT,
    "keystone.wsgi.api:application",
    environment={
        "OS_KEYSTONE_CONFIG_DIR": str(CONFIGURATION.parent),
        "OS_KEYSTONE_CONFIG_FILES": CONFIGURATION.name,
    },
    reads=(CONFIGURATION, VERSION_LOCK),
    workers=3,
    threads=1,  # the first two requests of a process, if they come at once, break each other
)


def units() -> list[Unit]:
    return [
        Unit(
            "keystone",
            needs=("virtual environment", "database", "cache"),
            prepare=prepare,
            daemons=(DAEMON,),
            finish=add_service_project,
        )
    ]


def prepare() -> None:
    """Configuration, keys, tables, and what Keystone itself calls its bootstrap."""
    database.create("keystone", "keystone")
    fernet, credential = str(KEYS / "fernet"), str(KEYS / "credential")
    files.write_ini(
        CONFIGURATION,
        {
            "database": {"connection": database.url("keystone", "keystone"), "max_pool_size": 5},
            # The least that bcrypt takes: every log-in of a service would cost a core 250 ms.
            "identity": {"password_hash_algorithm": "bcrypt", "password_hash_rounds": 4},
            "token": {"provider": "fernet", "expiration": 86400},
            "fernet_tokens": {"key_repository": fernet},
            "fernet_receipts": {"key_repository": fernet},
            "credential": {"key_repository": credential},
            # Without it, Keystone takes almost half of the processor time of the whole cloud. Its processes share
            # what they keep, so what is revoked is so at once for all of them.
            "cache": {
                "enabled": True,
                "backend": "dogpile.cache.pymemcache",
                "memcache_servers": cache.SERVER,
            },
        },
    )
    for name in ("fernet", "credential"):
        for number in ("0", "1"):
            path = KEYS / name / number
            if not path.exists():
                files.write(path, base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())
        (KEYS / name).chmod(0o700)
    once(KEYS / "made-from", files.digest([VERSION_LOCK]), _bootstrap)


def _bootstrap() -> None:
    manage = (venv.program("keystone-manage"), "--config-file", CONFIGURATION)
    commands.run(*manage, "db_sync")
    commands.run(
        *(*manage, "bootstrap", "--bootstrap-password", password("admin")),
        *("--bootstrap-public-url", KEYSTONE_URL, "--bootstrap-internal-url", KEYSTONE_URL),
        *("--bootstrap-region-id", REGION),
    )


def add_service_project() -> None:
    """The project that the services' own users are in."""
    rest.cloud().ensure("identity", "projects", {"name": SERVICE_PROJECT, "domain_id": "default"})


def add_user(name: str, project: str, *roles: str) -> None:
    """Have a user *name* with *roles* in *project*."""
    cloud = rest.cloud()
    wanted = {"name": name, "password": password(name), "domain_id": "default"}
    user = cloud.ensure("identity", "users", wanted, name=name)
    (where,) = cloud.find("identity", "projects", name=project)
    known = {role["name"]: role["id"] for role in cloud.find("identity", "roles")}
    for role in roles:
        cloud.call(
            "PUT", "identity", f"projects/{where['id']}/users/{user['id']}/roles/{known[role]}"
        )


def add_service(name: str, kind: str, url: str) -> None:
    """Have a service user *name*, and *url* in the catalogue as the service of type *kind*."""
    add_user(name, SERVICE_PROJECT, *SERVICE_ROLES)
    cloud = rest.cloud()
    service = cloud.ensure("identity", "services", {"name": name, "type": kind}, "type")
    for interface in ("public", "internal"):
        wanted = {
            "service_id": service["id"],
            "interface": interface,
            "region_id": REGION,
            "url": url,
        }
        cloud.ensure("identity", "endpoints", wanted, "service_id", "interface", "region_id")


def client(user: str) -> dict[str, Any]:
    """The options with which a service authenticates as *user*."""
    return {
        "auth_url": KEYSTONE_URL,
        "auth_type": "password",
        "username": user,
        "password": password(user),
        "project_name": SERVICE_PROJECT,
        "user_domain_name": "Default",
        "project_domain_name": "Default",
        "region_name": REGION,
    }


def token_check(user: str) -> dict[str, dict[str, Any]]:
    """The section with which a service checks the tokens it is shown."""
    options = client(user) | {
        "www_authenticate_uri": f"http://{ADDRESS}:{KEYSTONE_PORT}/v3",
        "service_token_roles": "service",
        "service_token_roles_required": True,
    }
    return {"keystone_authtoken": options}
