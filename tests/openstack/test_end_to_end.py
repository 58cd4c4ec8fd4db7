# SPDX-License-Identifier: Apache-2.0
"""What a tenant sees: one command, a VM with cGPUs, and nothing of it left after another.

Everything is real here: Keystone, Nova, Neutron, the message bus, a guest in QEMU that runs cloud-init, and GSaaS's
own processes. The VM computes, on CPU devices; where no guest runs, GPUs are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openstack.connection import Connection

from tests.openstack.bed import machines, settings, user_data
from tests.openstack.bed.user_data import MASKED
from tests.openstack.guest_client import (
    computed,
    heard,
    holders,
    mappings,
    output,
    run,
    shown,
)
from tests.openstack.servers import Servers, links

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
        place = (
            f"-image={settings.EMPTY_IMAGE}",
            f"-flavor={flavor}",
            f"-network={settings.NETWORK}",
        )
        return run(TENANT, "-l", *words, *place)

    return launch


def test_the_headline_command_is_all_it_takes_to_get_a_vm_with_cgpus(
    remains: Servers, tenant: Connection
):
    shown = output(TENANT, "gsaas", "-l", "-ncgpus=2", "-poolmem=2048", "-mode=shared")
    (lease,) = run(TENANT, "list")
    assert lease["status"] == "ACTIVE"
    server = tenant.compute.get_server(lease["server"]["id"])
    remains.watch(server)
    assert server.flavor.original_name == settings.FLAVOR
    assert server.image.id == tenant.image.find_image(settings.IMAGE).id
    ((network, (address,)),) = server.addresses.items()
    assert network == settings.NETWORK
    for said in (
        f"address  {address['addr']}",
        "0  169.254.71.1:8308  2048  shared",
        "1  169.254.71.2:8308  2048  shared",
        f"gsaas -t -id={lease['name']}",
    ):
        assert said in shown
    assert run(TENANT, "-t", f"-id={lease['name']}")["status"] == "RELEASED"


def test_a_tenant_gets_a_vm_that_computes_on_its_cgpus_and_gives_everything_back(
    remains: Servers,
    tenant: Connection,
    eventually: Eventually,
):
    before = mappings()

    lease = run(
        TENANT,
        *("-l", "-ncgpus=2", "-kind=cpu", "-poolmem=256", "-mode=shared", "-name=training"),
        f"-userdata={user_data.FILE}",
    )
    assert lease["status"] == "ACTIVE"
    assert tuple(device["masked_address"] for device in lease["devices"]) == MASKED
    assert lease["id"] in holders()
    assert mappings() == before + 2
    server = tenant.compute.get_server(lease["server"]["id"])
    assert (server.name, server.status) == ("training", "ACTIVE")
    tap = remains.watch(server)
    assert links()[tap]["master"] == f"qbr{tap.removeprefix('tap')}"

    computed(remains.await_console(server, heard))
    assert {device["gpu_host"] for device in shown(lease["id"])["devices"]} == {machines.CPU_HOST}

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
    launch: Gsaas,
    remains: Servers,
    admin: Connection,
    tenant: Connection,
    eventually: Eventually,
    await_lease: Callable[[str, str], None],
):
    lease = launch(settings.FAKE_FLAVOR, "-ncgpus=1", "-poolmem=512", "-mode=shared", "-nowait")
    place = eventually(
        lambda: (
            (server := admin.gpu_scheduling.get_lease(lease["id"]).server)["host"]
            and server["id"]
            and server
        )
    )
    server = tenant.compute.get_server(place["id"])
    host, tap = place["host"], remains.watch(server)
    machines.add_tap(host, tap)
    try:
        await_lease(lease["id"], "ACTIVE")
        tenant.compute.delete_server(server)
        await_lease(lease["id"], "RELEASED")
        assert lease["id"] not in holders()
    finally:
        machines.remove_tap(host, tap)
