# SPDX-License-Identifier: Apache-2.0
"""What a tenant sees: one command, a VM with cGPUs, and nothing of it left after another.

Everything is real here: Keystone, Nova, Neutron, the message bus, a guest in QEMU that runs cloud-init, and GSaaS's
own processes. The GPUs alone are simulated: each answers with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openstack.connection import Connection

from tests.openstack.bed import machines, settings
from tests.openstack.guest_client import (
    ASK,
    MASKED,
    NOT_GIVEN,
    REAL,
    answers,
    environment,
    heard,
    holders,
    mappings,
    run,
    shown,
)
from tests.openstack.servers import Servers

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(1800)]

TENANT = settings.TENANTS[0]

Gsaas = Callable[..., Any]
Eventually = Callable[[Callable[[], Any]], Any]


@pytest.fixture
def remains(admin: Connection, tenant: Connection) -> Iterator[Servers]:
    """Told of servers, sees at the end that nothing is left of them in the cloud.

    Leases that a failed test has left are terminated first, those of a failed launch, too: the next test finds all GPUs
    free.
    """
    servers = Servers(admin, tenant)
    yield servers
    for lease in run(TENANT, "list"):
        run(TENANT, "-t", f"-id={lease['id']}")
    assert servers.remains() == []


@pytest.fixture
def launch(remains: Servers) -> Gsaas:
    """Launch a lease as the tenant."""

    def launch(flavor: str, *words: str) -> dict[str, Any]:
        place = (f"-image={settings.IMAGE}", f"-flavor={flavor}", f"-network={settings.NETWORK}")
        return run(TENANT, "-l", *words, *place)

    return launch


def test_a_tenant_gets_a_vm_with_its_gpus_and_gives_everything_back(
    launch: Gsaas,
    remains: Servers,
    tenant: Connection,
    eventually: Eventually,
    tmp_path: Path,
):
    client = tmp_path / "client.yaml"
    client.write_text(ASK)
    before = mappings()

    lease = launch(
        settings.FLAVOR,
        *("-ncgpus=2", "-poolmem=2048", "-mode=shared", "-name=training"),
        f"-userdata={client}",
    )
    assert lease["status"] == "ACTIVE"
    assert tuple(device["masked_address"] for device in lease["devices"]) == MASKED
    assert lease["id"] in holders()
    assert mappings() == before + 2
    server = tenant.compute.get_server(lease["server"]["id"])
    assert (server.name, server.status) == ("training", "ACTIVE")
    remains.watch(server)

    said = eventually(lambda: heard(remains.console(server)))
    assert environment(said) == {
        "RCUDA_DEVICE_COUNT": "2",
        "RCUDA_DEVICE_0": "169.254.71.1:0",
        "RCUDA_DEVICE_1": "169.254.71.2:0",
        "RCUDA_RESERVED_GPU_MEMORY_0": "2048",
        "RCUDA_RESERVED_GPU_MEMORY_1": "2048",
    }
    devices = shown(lease["id"])["devices"]
    answered = answers(said)
    for device in devices:
        answer = answered.pop(device["masked_address"])
        assert (answer["gpu"], answer["host"]) == (device["gpu_uuid"], device["gpu_host"])
    assert answered == {NOT_GIVEN: {}, **{address: {} for address in REAL}}

    assert run(TENANT, "-t", f"-id={server.id}")["status"] == "RELEASED"
    assert mappings() == before
    # Nova shows a server that it has deleted for another moment.
    assert eventually(lambda: tenant.compute.find_server(server.id) is None)
    assert lease["id"] not in holders()


def test_a_local_vm_runs_on_the_host_of_its_gpus(
    launch: Gsaas, remains: Servers, tenant: Connection
):
    lease = launch(settings.FLAVOR, "-ncgpus=2", "-poolmem=1024", "-mode=shared", "-locality=local")
    remains.watch(tenant.compute.get_server(lease["server"]["id"]))
    seen = shown(lease["id"])
    assert seen["server"]["host"] == settings.REAL_HOST
    assert {device["gpu_host"] for device in seen["devices"]} == {settings.REAL_HOST}
    assert run(TENANT, "-t", f"-id={lease['id']}")["status"] == "RELEASED"


def test_a_vm_deleted_with_nova_gives_its_gpus_back(
    launch: Gsaas, remains: Servers, tenant: Connection, eventually: Eventually
):
    lease = launch(settings.FAKE_FLAVOR, "-ncgpus=1", "-poolmem=512", "-mode=shared", "-nowait")
    seen = eventually(
        lambda: (seen := shown(lease["id"]))["server"]["host"] and seen["server"]["id"] and seen
    )
    server = tenant.compute.get_server(seen["server"]["id"])
    host, tap = seen["server"]["host"], remains.watch(server)
    machines.add_tap(host, tap)
    try:
        eventually(lambda: shown(lease["id"])["status"] == "ACTIVE")
        tenant.compute.delete_server(server)
        eventually(lambda: shown(lease["id"])["status"] == "RELEASED")
        assert lease["id"] not in holders()
    finally:
        machines.remove_tap(host, tap)
