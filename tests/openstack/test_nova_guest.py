# SPDX-License-Identifier: Apache-2.0
"""What its owner does to a real VM: its cGPUs are back whenever it is, and given back when it leaves its host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openstack.connection import Connection

from tests.openstack.bed import settings
from tests.openstack.guest_client import mappings, run, shown
from tests.openstack.servers import Servers

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(1800)]

TENANT = settings.TENANTS[0]
Eventually = Callable[[Callable[[], Any]], Any]


@pytest.fixture
def guest(admin: Connection, tenant: Connection) -> Iterator[Callable[[], dict[str, Any]]]:
    """Launches a real VM with one cGPU; nothing of it is left in the end."""
    servers = Servers(admin, tenant)
    launched: list[dict[str, Any]] = []

    def guest() -> dict[str, Any]:
        place = (
            f"-image={settings.EMPTY_IMAGE}",
            f"-flavor={settings.FLAVOR}",
            f"-network={settings.NETWORK}",
        )
        lease = run(TENANT, "-l", "-ncgpus=1", "-poolmem=512", "-mode=shared", *place)
        launched.append(lease)
        servers.watch(tenant.compute.get_server(lease["server"]["id"]))
        return lease

    yield guest
    for lease in launched:
        if shown(lease["id"])["status"] != "RELEASED":
            run(TENANT, "-t", f"-id={lease['id']}")
    servers.delete()
    assert servers.remains() == []


def test_a_guest_has_its_cgpus_whenever_it_runs_and_not_when_it_was_shelved(
    guest: Callable,
    tenant: Connection,
    eventually: Eventually,
    await_lease: Callable[[str, str], None],
):
    before = mappings()
    lease = guest()
    server_id, compute = lease["server"]["id"], tenant.compute
    image = tenant.image.find_image(settings.EMPTY_IMAGE).id

    def settled(status: str) -> bool:
        server = compute.get_server(server_id)
        return server.status == status and server.task_state is None

    for act, status, connected in (
        (lambda: None, "ACTIVE", 1),
        (lambda: compute.reboot_server(server_id, "HARD"), "ACTIVE", 1),
        (lambda: compute.stop_server(server_id), "SHUTOFF", 0),
        (lambda: compute.start_server(server_id), "ACTIVE", 1),
        (lambda: compute.rebuild_server(server_id, image), "ACTIVE", 1),
    ):
        act()
        eventually(lambda status=status: settled(status))
        eventually(lambda connected=connected: mappings() == before + connected)
        assert shown(lease["id"])["status"] == "ACTIVE"

    compute.shelve_server(server_id)
    await_lease(lease["id"], "RELEASED")
    eventually(lambda: settled("SHELVED_OFFLOADED"))
    assert mappings() == before
    assert shown(lease["id"])["devices"] == []
