# SPDX-License-Identifier: Apache-2.0
"""Servers that a test boots in the cloud, and what might be left of them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

from openstack.connection import Connection

from tests.openstack.bed import hypervisors, settings

T = TypeVar("T")
POLL = 2.0
"""Seconds. For each look at a server, Nova asks Neutron twice."""
POLL_CONSOLE = 3.0
"""Seconds. For each look at a console, Nova asks the host; and a guest takes a minute to boot on a busy machine."""
PATIENCE = 900
PATIENCE_PLACEMENT = 60
"""Seconds within which Nova has taken the allocation of a server that is DELETED out of Placement."""


class Servers:
    """Boots servers as *tenant* and remembers them; asks as *admin* what remains."""

    def __init__(self, admin: Connection, tenant: Connection) -> None:
        self._admin, self._tenant = admin, tenant
        self._booted: list[str] = []
        self._suffixes: set[str] = set()

    def boot(self, name: str, *, flavor: str, **more: Any) -> Any:
        """Return the new server once it is ACTIVE."""
        compute = self._tenant.compute
        server = compute.create_server(
            name=name,
            image_id=self._tenant.image.find_image(settings.IMAGE).id,
            flavor_id=compute.find_flavor(flavor).id,
            networks=[{"uuid": self._tenant.network.find_network(settings.NETWORK).id}],
            **more,
        )
        self._booted.append(server.id)
        server = compute.wait_for_server(server, interval=POLL, wait=PATIENCE)
        self.watch(server)
        return server

    def remember(self, server_id: str) -> None:
        """Delete a server at the end, too, whoever booted it."""
        if server_id not in self._booted:
            self._booted.append(server_id)

    def watch(self, server: Any) -> str:
        """Remember a server that has its port, or the id of one, whoever booted it; return `tap` of it."""
        self.remember(server if isinstance(server, str) else server.id)
        tap = self.tap(server)
        self._suffixes.add(tap.removeprefix("tap"))
        return tap

    def tap(self, server: Any) -> str:
        """The name that the network interface of a server, or of the one with this id, has on its host."""
        server_id = server if isinstance(server, str) else server.id
        (port,) = self._tenant.network.ports(device_id=server_id)
        return f"tap{port.id[:11]}"

    def host(self, server: Any) -> str:
        """The host that *server* is on, which its owner is not told."""
        return self._admin.compute.get_server(server.id).compute_host

    def await_console(self, server: Any, find: Callable[[str], T]) -> T:
        """Return what *find* finds on the console of *server*, once that is a true value."""
        deadline = time.monotonic() + PATIENCE
        while True:
            console = self._tenant.compute.get_server_console_output(server.id)["output"]
            if found := find(console):
                return found
            assert time.monotonic() < deadline, f"not within {PATIENCE} s: {console[-500:]}"
            time.sleep(POLL_CONSOLE)

    def delete(self) -> None:
        """Delete every server, and return once Nova has none of them."""
        for identity in self._booted:
            self._tenant.compute.delete_server(identity, ignore_missing=True)
        for server in list(self._tenant.compute.servers()):
            if server.id in self._booted:
                self._tenant.compute.wait_for_delete(server, interval=POLL, wait=PATIENCE)

    def remains(self) -> list[str]:
        """What is there of the servers in Neutron, in Placement, in libvirt and in the kernel."""
        found = []
        for identity in self._booted:
            found += [f"port {port.id}" for port in self._admin.network.ports(device_id=identity)]
            found += [f"allocation of {identity}"] if self._keeps_allocation(identity) else []
        found += [f"guest {name}" for name in sorted(guests() & set(self._booted))]
        return found + [f"link {name}" for name in links() if name[3:] in self._suffixes]

    def _keeps_allocation(self, identity: str) -> bool:
        """Whether Placement still holds something for a server after a moment.

        Nova says DELETED once the guest and its port are gone, and only then takes the allocation out of Placement.
        """
        deadline = time.monotonic() + PATIENCE_PLACEMENT
        while self._admin.placement.get(f"/allocations/{identity}").json()["allocations"]:
            if time.monotonic() > deadline:
                return True
            time.sleep(POLL)
        return False


def guests() -> set[str]:
    """The ids of the servers that libvirt knows."""
    listed = subprocess.run(
        ["virsh", "-c", hypervisors.LIBVIRT_URL, "list", "--all", "--uuid"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(listed.stdout.split())


def links() -> dict[str, dict[str, Any]]:
    """The machine's network interfaces by name."""
    listed = subprocess.run(["ip", "-j", "link"], check=True, capture_output=True, text=True)
    return {link["ifname"]: link for link in json.loads(listed.stdout)}
