"""The OpenStack test bed: guests that really boot, and servers on hypervisors that only pretend.

A guest is ready when it has run its user data and its lease is ACTIVE; a pretended server when its lease is. What a
hypervisor that pretends does not make, its network interface, is made here the moment Nova names the host.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openstack.config import OpenStackConfig
from openstack.connection import Connection

from bench import boots
from bench.boots import Boot
from gsaas.client import Client, UnreachableError
from gsaas.client.cloud import CloudTransport
from gsaas.objects import timings
from tests.openstack import cli
from tests.openstack.bed import credentials, machines, settings
from tests.support.waiting import until

PATIENCE = 600  # seconds
POLL = 0.2  # seconds
WARM_UP = 6
"""Servers launched beforehand, so that every process has its tokens and connections, as in a cloud that is in use."""
CONSOLES = settings.STATE / f"nova-{settings.REAL_HOST}" / "instances"
TOLD = "BENCH: READY WITH"
TELL = f"""\
#cloud-config
runcmd:
  - |
    [ ! -e /etc/profile.d/gsaas.sh ] || . /etc/profile.d/gsaas.sh
    echo "{TOLD} ${{RCUDA_DEVICE_COUNT:-0}}." >/dev/console
"""
"""What a guest does when it is ready."""


class OpenStack:
    """Boots servers as one tenant."""

    name = "OpenStack"

    def __init__(self) -> None:
        clouds = OpenStackConfig(config_files=[str(credentials.CLOUDS)], load_envvars=False)
        self._cloud = Connection(config=clouds.get_one(settings.TENANTS[0]))
        self._tenant = Client(_User(clouds, settings.TENANTS[0]))
        self._admin = Client(_User(clouds, "admin"))
        self._leases: list[str] = []
        self._taps: list[tuple[str, str]] = []
        self._image = self._cloud.image.find_image(settings.IMAGE).id
        self._network = self._cloud.network.find_network(settings.NETWORK).id
        self._user_data = base64.b64encode(TELL.encode()).decode()

    def boot(self, cgpus: int) -> Boot:
        """Boot a guest; without GSaaS, if it gets no cGPUs."""
        booted = self._guest_with_gpus(cgpus) if cgpus else self._plain_guest()
        self.clear()
        return booted

    def add(self) -> Boot:
        """Launch a server on a hypervisor that pretends."""
        lease_id, begun = self._launch(1, settings.FAKE_FLAVOR)
        server = until(lambda: self._placed(lease_id), "a host", PATIENCE)
        (port,) = self._cloud.network.ports(device_id=server["id"])
        tap = (server["host"], f"tap{port.id[:11]}")
        self._taps.append(tap)
        machines.add_tap(*tap)
        return Boot(*self._await_active(lease_id, begun))

    def clear(self) -> None:
        for lease_id in self._leases:
            _ask(self._tenant, "DELETE", f"/v1/leases/{lease_id}")
        for lease_id in self._leases:
            until(lambda i=lease_id: self._status(i) == "RELEASED", "the end of a VM", PATIENCE)
        for tap in self._taps:
            machines.remove_tap(*tap)
        self._leases.clear()
        self._taps.clear()

    def _guest_with_gpus(self, cgpus: int) -> Boot:
        lease_id, begun = self._launch(cgpus, settings.FLAVOR, user_data=self._user_data)
        _, phases = self._await_active(lease_id, begun)
        server_id = self._show(lease_id)["server"]["id"]
        return Boot(self._await_guest(server_id, cgpus, begun), phases)

    def _plain_guest(self) -> Boot:
        compute = self._cloud.compute
        flavor = compute.find_flavor(settings.FLAVOR).id
        begun = time.perf_counter()
        server = compute.create_server(
            name="bench",
            image_id=self._image,
            flavor_id=flavor,
            networks=[{"uuid": self._network}],
            user_data=self._user_data,
        )
        created = time.perf_counter()
        try:
            compute.wait_for_server(server, interval=POLL, wait=PATIENCE)
            active = time.perf_counter()
            seconds = self._await_guest(server.id, 0, begun)
        finally:
            compute.delete_server(server)
            compute.wait_for_delete(server, interval=POLL, wait=PATIENCE)
        phases = {timings.CREATION: created - begun, timings.ACTIVATION: active - created}
        return Boot(seconds, phases)

    def _launch(self, cgpus: int, flavor: str, **server: Any) -> tuple[str, float]:
        """Return the lease's id, and when it was asked for."""
        server |= {
            "imageRef": self._image,
            "flavorRef": self._cloud.compute.find_flavor(flavor).id,
            "networks": [{"uuid": self._network}],
        }
        body = {"lease": {"cgpus": boots.wanted(cgpus), "server": server}}
        begun = time.perf_counter()
        lease_id = self._tenant.request("POST", "/v1/leases", body)["lease"]["id"]
        self._leases.append(lease_id)
        return lease_id, begun

    def _await_active(self, lease_id: str, begun: float) -> tuple[float, dict[str, float]]:
        until(lambda: self._status(lease_id) == "ACTIVE", "the server and its GPUs", PATIENCE)
        return time.perf_counter() - begun, boots.phases(self._show(lease_id))

    def _await_guest(self, server_id: str, cgpus: int, begun: float) -> float:
        """Wait for what the guest says last; return the seconds since *begun*."""
        console = CONSOLES / server_id / "console.log"
        said = f"{TOLD} {cgpus}."
        until(lambda: said in _read(console), f"the guest to say: {said}", PATIENCE)
        return time.perf_counter() - begun

    def _placed(self, lease_id: str) -> dict[str, str] | None:
        lease = self._show(lease_id, self._admin)
        assert lease["status"] != "ERROR", lease["fault"]
        server = lease["server"]
        return server if server["id"] and server["host"] else None

    def _status(self, lease_id: str) -> str:
        time.sleep(POLL)  # a question costs the machine that the guest boots on
        lease = self._show(lease_id)
        assert lease["status"] != "ERROR", lease["fault"]
        return lease["status"]

    def _show(self, lease_id: str, client: Client | None = None) -> dict[str, Any]:
        return _ask(client or self._tenant, "GET", f"/v1/leases/{lease_id}")["lease"]


class _User:
    """Credentials of one of the bed's users."""

    def __init__(self, clouds: OpenStackConfig, name: str) -> None:
        self._region = clouds.get_one(name)

    def connect(self) -> CloudTransport:
        return CloudTransport(self._region, self._region.get_session())


@contextmanager
def running() -> Iterator[OpenStack]:
    """The bed, up; it is left as it was found. Raises `subprocess.CalledProcessError` if it does not come up."""
    with cli.lent():
        cloud = OpenStack()
        try:
            for _ in range(WARM_UP):
                cloud.add()
            cloud.clear()
            yield cloud
        finally:
            cloud.clear()


def _ask(client: Client, method: str, path: str) -> Any:
    """Ask until there is an answer: twenty minutes are not lost because somebody restarted the API."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return client.request(method, path)
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL)


def _read(console: Path) -> str:
    return console.read_text(errors="replace") if console.exists() else ""
