# SPDX-License-Identifier: Apache-2.0
"""Servers that tenants make with `openstack server create` alone get their cGPUs because of their properties.

Everything is real, as in `test_end_to_end`: Nova asks GSaaS for vendor data, and cloud-init in the guest runs it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openstack.connection import Connection

from gsaasclient import sdk
from tests.openstack import ansible, users
from tests.openstack.bed import credentials, settings, user_data
from tests.openstack.bed.user_data import MASKED
from tests.openstack.guest_client import (
    computed,
    heard,
    holders,
    mappings,
    output,
    shown,
)
from tests.openstack.plain_examples import block, documented
from tests.openstack.servers import Servers
from tests.openstack.users import lease_of

pytestmark = users.pytestmark

TENANT = settings.TENANTS[0]
SHARES = {"gsaas:ncgpus": "2", "gsaas:poolmem": "2048", "gsaas:mode": "shared"}
Eventually = Callable[[Callable[[], Any]], Any]
AwaitLease = Callable[[str, str], None]


@pytest.fixture
def create(servers: Servers, tenant: Connection) -> Callable[..., Any]:
    """Makes servers with `openstack server create`."""

    def create(name: str, *words: str) -> Any:
        said = output(TENANT, "openstack", "server", "create", *words, name, "-f", "json")
        server_id = json.loads(said)["id"]
        servers.remember(server_id)
        return tenant.compute.get_server(server_id)

    return create


def place(flavor: str) -> tuple[str, ...]:
    """Return the options that any server needs."""
    return (f"--image={settings.IMAGE}", f"--network={settings.NETWORK}", f"--flavor={flavor}")


@pytest.fixture
def gpus(tenant: Connection) -> Any:
    """GSaaS as the tenant."""
    sdk.add_service(tenant)
    return tenant.gpu_scheduling


def test_a_plain_server_of_a_flavor_computes_on_its_cgpus_until_it_is_deleted(
    servers: Servers,
    create: Callable,
    gpu_flavor: Callable,
    admin: Connection,
    tenant: Connection,
    gpus: Any,
    eventually: Eventually,
    await_lease: AwaitLease,
):
    before = mappings()
    flavor = gpu_flavor(settings.FLAVOR, {**SHARES, "gsaas:kind": "cpu", "gsaas:poolmem": "256"})

    server = create("plain", *place(flavor), f"--user-data={user_data.FILE}")
    lease = eventually(lambda: lease_of(gpus, server))
    assert (lease.name, lease.project_id) == ("plain", tenant.current_project_id)
    await_lease(lease.id, "ACTIVE")
    assert mappings() == before + 2

    computed(servers.await_console(server, heard))
    devices = shown(lease.id)["devices"]
    assert tuple(device["masked_address"] for device in devices) == MASKED

    tenant.compute.delete_server(server.id)
    await_lease(lease.id, "RELEASED")
    assert mappings() == before
    assert lease.id not in holders()


def test_metadata_asks_for_cgpus_as_the_page_shows_it_and_a_notification_is_enough(
    create: Callable,
    taps: None,
    tenant: Connection,
    gpus: Any,
    eventually: Eventually,
    await_lease: AwaitLease,
):
    """Servers of fake hypervisors have no config drive: nobody asks GSaaS for their vendor data."""
    command = documented(r"^    openstack server create ([^\n]*\\\n[^\n]*--property[^\n]*) web$")
    server = create("noticed", *shlex.split(command.replace("\\\n", "")))
    lease = eventually(lambda: lease_of(gpus, server))
    assert lease.cgpus["count"] == 2
    await_lease(lease.id, "ACTIVE")
    tenant.compute.delete_server(server.id)
    await_lease(lease.id, "RELEASED")
    assert lease.id not in holders()


def run_sdk(example: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", example],
        env={"PATH": os.environ["PATH"], "OS_CLIENT_CONFIG_FILE": str(credentials.CLOUDS)},
        cwd=folder,
        capture_output=True,
        text=True,
    )


def run_ansible(example: str, folder: Path) -> subprocess.CompletedProcess[str]:
    ansible.install()
    book = folder / "web.yaml"
    book.write_text(example)
    return ansible.play(book)


@pytest.mark.parametrize(
    ("tool", "run"),
    [("openstacksdk", run_sdk), ("Ansible", run_ansible)],
    ids=["openstacksdk", "Ansible"],
)
def test_the_example_with_a_tool_makes_a_server_with_cgpus(
    tool: str,
    run: Callable[[str, Path], subprocess.CompletedProcess[str]],
    taps: None,
    servers: Servers,
    tenant: Connection,
    gpus: Any,
    eventually: Eventually,
    await_lease: AwaitLease,
    tmp_path: Path,
):
    done = run(block(tool), tmp_path)
    server = tenant.compute.find_server("web")
    if server is not None:
        servers.remember(server.id)
    assert done.returncode == 0, done.stdout + done.stderr
    lease = eventually(lambda: lease_of(gpus, server))
    assert (lease.name, lease.cgpus["memory_mb"]) == ("web", 2048)
    await_lease(lease.id, "ACTIVE")
    tenant.compute.delete_server(server)
    await_lease(lease.id, "RELEASED")


def test_a_server_that_is_shelved_gives_its_cgpus_back_and_comes_back_without(
    create: Callable,
    taps: None,
    tenant: Connection,
    gpus: Any,
    eventually: Eventually,
    await_lease: AwaitLease,
):
    server = create(
        "shelved",
        *place(settings.FAKE_FLAVOR),
        *(f"--property={name}={value}" for name, value in SHARES.items()),
    )
    lease = eventually(lambda: lease_of(gpus, server))
    await_lease(lease.id, "ACTIVE")
    tenant.compute.shelve_server(server)
    await_lease(lease.id, "RELEASED")
    assert lease.id not in holders()

    def status() -> str:
        return tenant.compute.get_server(server.id).status

    eventually(lambda: status() == "SHELVED_OFFLOADED")
    tenant.compute.unshelve_server(server)
    eventually(lambda: status() == "ACTIVE")
    assert lease_of(gpus, server) is None


def test_without_gpus_for_it_a_server_fails_with_the_reason(
    create: Callable, tenant: Connection, eventually: Eventually
):
    server = create("too-large", *place(settings.FLAVOR), "--property=gsaas:ncgpus=1000")
    failed = eventually(
        lambda: (
            (found := tenant.compute.get_server(server.id)).status in ("ERROR", "ACTIVE") and found
        )
    )
    assert failed.status == "ERROR"
    assert "cGPUs" in failed.fault["message"]
