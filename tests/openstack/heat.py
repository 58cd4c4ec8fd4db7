# SPDX-License-Identifier: Apache-2.0
"""Heat with GSaaS's plug-in beside the test bed: installed in an environment of its own, as doc/heat.md says."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.openstack.bed import (
    commands,
    credentials,
    database,
    files,
    keystone,
    messages,
    processes,
    rest,
    settings,
    venv,
    wsgi,
)
from tests.openstack.bed.once import once

ROOT = Path(__file__).parents[2]
LOCK = Path(__file__).with_name("heat.lock")
VENV = settings.CACHE / "heat"
CONFIGURATION = settings.STATE / "heat" / ".heat" / "heat.conf"
"""Below the home of Heat's processes, where oslo.config looks: heat-api has no option that names it."""

PORT = 8004
URL = f"http://{settings.ADDRESS}:{PORT}/v1/%(tenant_id)s"
USER = "heat"
STACK_ROLE = "heat_stack_user"
STACK_DOMAIN = "heat"
STACK_ADMIN = "heat_domain_admin"


def program(name: str) -> Path:
    """Return the path of a program of the environment."""
    return VENV / "bin" / name


HOME = {"HOME": str(CONFIGURATION.parents[1])}
API = wsgi.daemon(
    "heat",
    PORT,
    "heat.wsgi.api:application",
    environment=HOME,
    reads=(CONFIGURATION, LOCK),
    virtualenv=VENV,
)
ENGINE = processes.Daemon(
    name="heat-engine",
    command=(program("heat-engine"), "--config-file", CONFIGURATION),
    environment=HOME,
    reads=(CONFIGURATION, LOCK),
    ready=processes.log_says("heat-engine", "Starting engine_worker"),
)


@contextmanager
def running() -> Iterator[None]:
    """Heat, in a bed that is up; its processes end afterwards."""
    install()
    _prepare()
    daemons = (API, ENGINE)
    try:
        for daemon in daemons:
            processes.ensure(daemon)
        yield
    finally:
        pids = {record.pid for each in daemons if (record := processes.running(each.name))}
        processes.end({*pids, *processes.descendants(pids)})


def install() -> None:
    """Install the releases of `heat.lock`, and the plug-in and the client as they are in this source tree."""
    own = [*(ROOT / "heat").glob("setup.*"), ROOT / "client" / "setup.cfg"]
    once(VENV.with_name("heat.made-from"), files.digest([LOCK, *own], str(ROOT)), _install)


def _install() -> None:
    environment = dict(os.environ)
    commands.run(venv.PYTHON, "-m", "venv", "--clear", "--without-pip", VENV, env=environment)
    uv = (venv.program("uv"), "pip")
    python = ("-q", "--python", program("python"))
    commands.run(*uv, "sync", *python, "--compile-bytecode", LOCK, env=environment)
    for folder in ("client", "heat"):
        commands.run(
            *uv, "install", *python, "--no-deps", "-e", str(ROOT / folder), env=environment
        )


def _prepare() -> None:
    """Configuration, tables, and what Heat's installation guide has an administrator do in Keystone."""
    database.create("heat", USER)
    files.write_ini(CONFIGURATION, _configuration())
    manage = (program("heat-manage"), "--config-file", CONFIGURATION, "db_sync")
    once(CONFIGURATION.with_name("made-from"), files.digest([LOCK]), lambda: commands.run(*manage))
    keystone.add_service(USER, "orchestration", URL)
    cloud = rest.cloud()
    cloud.ensure("identity", "roles", {"name": STACK_ROLE})
    domain = cloud.ensure("identity", "domains", {"name": STACK_DOMAIN})
    admin = cloud.ensure(
        "identity",
        "users",
        {
            "name": STACK_ADMIN,
            "domain_id": domain["id"],
            "password": settings.password(STACK_ADMIN),
        },
        name=STACK_ADMIN,
    )
    (role,) = cloud.find("identity", "roles", name="admin")
    cloud.call("PUT", "identity", f"domains/{domain['id']}/users/{admin['id']}/roles/{role['id']}")


def _configuration() -> dict[str, dict[str, Any]]:
    folder = commands.run(program("python"), "-m", "gsaas_heat").strip()
    user = keystone.client(USER)
    trustee = ("auth_type", "auth_url", "username", "password", "user_domain_name")
    return {
        "DEFAULT": {
            "transport_url": messages.url(),
            "plugin_dirs": folder,
            "auth_encryption_key": settings.password("heat-encryption").ljust(32, "=")[:32],
            "num_engine_workers": 1,
            "rpc_response_timeout": 600,  # a busy machine validates slowly
            "region_name_for_services": settings.REGION,
            "stack_user_domain_name": STACK_DOMAIN,
            "stack_domain_admin": STACK_ADMIN,
            "stack_domain_admin_password": settings.password(STACK_ADMIN),
            "action_retry_limit": 1,
            "environment_dir": VENV / "etc" / "heat" / "environment.d",
            "template_dir": VENV / "etc" / "heat" / "templates",
        },
        "database": {"connection": database.url("heat", USER), "max_pool_size": 5},
        "clients_keystone": {"auth_uri": f"http://{settings.ADDRESS}:{settings.KEYSTONE_PORT}"},
        "paste_deploy": {"api_paste_config": VENV / "etc" / "heat" / "api-paste.ini"},
        "trustee": {name: user[name] for name in trustee},
        **keystone.token_check(USER),
    }


def openstack(user: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `openstack` with Heat's commands as *user* of clouds.yaml."""
    environment = {
        "PATH": os.environ["PATH"],
        "OS_CLIENT_CONFIG_FILE": str(credentials.CLOUDS),
        "OS_CLOUD": user,
    }
    return subprocess.run(
        [program("openstack"), *words], capture_output=True, text=True, env=environment
    )


def read(user: str, *words: str) -> Any:
    """Run a command of `openstack` that prints JSON; return what it printed."""
    done = openstack(user, *words, "-f", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)
