# SPDX-License-Identifier: Apache-2.0
"""`openstack gpu …` and openstacksdk as the tenant's guide shows them, on a real OpenStack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openstack.connection import Connection

from gsaasclient import sdk
from tests.openstack.bed import credentials, gsaas, machines, settings
from tests.openstack.servers import Servers
from tests.support import tenant_guide

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(1800)]

TENANT = settings.TENANTS[0]
HERE = {"debian": settings.EMPTY_IMAGE, "mycloud": TENANT, "gpu3": machines.GPU_HOSTS[0]}
"""What the guide calls something -> what it is called in this cloud; all other names are the same."""


def run(user: str, *command: str | Path) -> str:
    """Run a program as *user* of clouds.yaml; return its output."""
    environment = {
        "PATH": os.environ["PATH"],
        "OS_CLIENT_CONFIG_FILE": str(credentials.CLOUDS),
        "OS_CLOUD": user,
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def openstack(*words: str, user: str = TENANT) -> str:
    return run(user, gsaas.program("openstack"), *(HERE.get(word, word) for word in words))


def read(*words: str, user: str = TENANT) -> Any:
    return json.loads(openstack(*words, "-f", "json", user=user))


@pytest.fixture
def remains(admin: Connection, tenant: Connection) -> Iterator[Servers]:
    """Told of servers, sees at the end that nothing is left of them in the cloud, nor any lease."""
    sdk.add_service(tenant)
    servers = Servers(admin, tenant)
    yield servers
    left = list(tenant.gpu_scheduling.leases())
    for lease in left:
        tenant.gpu_scheduling.delete_lease(lease)
        tenant.gpu_scheduling.wait_for_release(lease)
    assert left == []
    assert servers.remains() == []


def test_the_commands_of_the_guide_launch_show_and_end_a_lease(
    tenant: Connection, remains: Servers
):
    said = {}
    for words in tenant_guide.commands():
        administrative = words[:2] == ["gpu", "host"]
        said[" ".join(words[:3])] = openstack(*words, user="admin" if administrative else TENANT)
        if words[:3] == ["gpu", "lease", "create"]:
            shown = read("gpu", "lease", "show", "training")
            assert (shown["status"], shown["memory_mb"]) == ("ACTIVE", 1024)
            server = tenant.compute.get_server(shown["server_id"])
            assert (server.name, server.status) == ("training", "ACTIVE")
            remains.watch(server)
            holders = {
                lease
                for gpu in read("gpu", "list", "--long", user="admin")
                for lease in gpu["Leases"]
            }
            assert shown["id"] in holders
            assert not [
                host
                for host in gsaas.COMPUTE_HOSTS + tuple(gsaas.GPUS)
                if host in json.dumps(shown)
            ]
    assert json.loads(said["gpu lease show"])["devices"] == shown["devices"]
    assert "export RCUDA_DEVICE_0=169.254.71.1:0\n" in said["gpu lease env"]
    (row,) = read(
        "gpu", "lease", "list", "--status", "RELEASED", "--sort", "created_at:desc", "--limit", "1"
    )
    assert (row["ID"], row["Name"]) == (shown["id"], "training-2")
    assert not read("gpu", "host", "show", "gpu3", user="admin")["disabled"]


def test_the_script_of_the_guide_launches_and_ends_a_lease(tenant: Connection, remains: Servers):
    script = tenant_guide.script()
    for theirs, ours in HERE.items():
        script = script.replace(f'"{theirs}"', f'"{ours}"')
    printed = run(TENANT, Path(sys.executable), "-c", script).splitlines()
    assert printed == ["ACTIVE 169.254.71.1:0", "training ACTIVE 2"]


def test_a_disabled_host_gets_no_lease_until_it_is_enabled(remains: Servers):
    host = machines.GPU_HOSTS[0]
    request = ("gpu", "check", "create", "--host", host)
    openstack("gpu", "host", "set", host, "--disable", user="admin")
    try:
        assert not read(*request)["fits"]
    finally:
        openstack("gpu", "host", "set", host, "--enable", user="admin")
    assert read(*request)["fits"]
