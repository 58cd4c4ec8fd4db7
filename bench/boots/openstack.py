# SPDX-License-Identifier: Apache-2.0
"""Boots on the OpenStack test bed: guests that really boot, and servers on Nova's fake driver.

A guest is ready when it has run its user data and its lease is ACTIVE; a server of the fake driver when its lease is
ACTIVE. The fake driver makes no network interface, so it is made here as soon as Nova names the host.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from openstack.config import OpenStackConfig
from openstack.connection import Connection

from bench import boots
from bench.boots import Boot, BootTarget
from gsaas.objects import timings
from gsaasclient import Client, UnreachableError
from gsaasclient.cloud import CloudCredentials, CloudTransport
from tests.openstack import cli
from tests.openstack.bed import credentials, machines, settings
from tests.support.waiting import until

TIMEOUT = 600  # seconds
POLL = 0.2  # seconds
WARM_UP = 6
"""Servers launched before measuring, so that every process has its tokens and connections, as in a cloud in use."""
CONSOLES = settings.STATE / f"nova-{settings.REAL_HOST}" / "instances"
READY_MESSAGE = "BENCH: READY WITH"
USER_DATA = f"""\
#cloud-config
runcmd:
  - |
    [ ! -e /etc/profile.d/gsaas.sh ] || . /etc/profile.d/gsaas.sh
    echo "{READY_MESSAGE} ${{RCUDA_DEVICE_COUNT:-0}}." >/dev/console
"""
"""Has a guest print on its console that it is ready."""


class OpenStackTarget(BootTarget):
    """The test bed, as one of its tenants uses it."""

    name = "OpenStack"

    def __init__(self) -> None:
        clouds = OpenStackConfig(config_files=[str(credentials.CLOUDS)], load_envvars=False)
        self._cloud = Connection(config=clouds.get_one(settings.TENANTS[0]))
        self._tenant = Client(_BedUser(clouds, settings.TENANTS[0]))
        self._admin = Client(_BedUser(clouds, "admin"))
        self._leases: list[str] = []
        self._taps: list[tuple[str, str]] = []
        self._image = self._cloud.image.find_image(settings.IMAGE, ignore_missing=False).id
        self._network = self._cloud.network.find_network(settings.NETWORK, ignore_missing=False).id
        self._user_data = base64.b64encode(USER_DATA.encode()).decode()

    def boot(self, cgpus: int) -> Boot:
        """Boot a guest and delete it; without cGPUs Nova boots it without GSaaS."""
        booted = self._boot_with_cgpus(cgpus) if cgpus else self._boot_without_gsaas()
        self.clear()
        return booted

    def add(self) -> Boot:
        """Launch a server on a hypervisor with the fake driver, and keep it."""
        lease_id, begun = self._launch(1, settings.FAKE_FLAVOR)
        server = until(lambda: self._placed_server(lease_id), "a host", TIMEOUT)
        assert server is not None  # `until` returns only what is true
        (port,) = self._cloud.network.ports(device_id=server["id"])
        tap = (server["host"], f"tap{port.id[:11]}")
        self._taps.append(tap)
        machines.add_tap(*tap)
        return Boot(*self._await_active(lease_id, begun))

    def clear(self) -> None:
        """Delete all servers, and the network interfaces made for them."""
        for lease_id in self._leases:
            _ask(self._tenant, "DELETE", f"/v1/leases/{lease_id}")
        for lease_id in self._leases:
            until(partial(self._has_status, lease_id, "RELEASED"), "the end of a VM", TIMEOUT)
        for tap in self._taps:
            machines.remove_tap(*tap)
        self._leases.clear()
        self._taps.clear()

    def _boot_with_cgpus(self, cgpus: int) -> Boot:
        lease_id, begun = self._launch(cgpus, settings.FLAVOR, user_data=self._user_data)
        _, phases = self._await_active(lease_id, begun)
        server_id = self._show(lease_id)["server"]["id"]
        return Boot(self._await_guest(server_id, cgpus, begun), phases)

    def _boot_without_gsaas(self) -> Boot:
        compute = self._cloud.compute
        flavor = compute.find_flavor(settings.FLAVOR, ignore_missing=False).id
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
            compute.wait_for_server(server, interval=POLL, wait=TIMEOUT)
            active = time.perf_counter()
            seconds = self._await_guest(server.id, 0, begun)
        finally:
            compute.delete_server(server)
            compute.wait_for_delete(server, interval=POLL, wait=TIMEOUT)
        phases = {timings.CREATION: created - begun, timings.ACTIVATION: active - created}
        return Boot(seconds, phases)

    def _launch(self, cgpus: int, flavor: str, **server: Any) -> tuple[str, float]:
        """Request a launch; return the lease's id, and the time of the request."""
        server |= {
            "imageRef": self._image,
            "flavorRef": self._cloud.compute.find_flavor(flavor, ignore_missing=False).id,
            "networks": [{"uuid": self._network}],
        }
        lease = {"cgpus": boots.cgpus_request(cgpus), "server": server}
        begun = time.perf_counter()
        lease_id = self._tenant.launch(lease)["lease"]["id"]
        self._leases.append(lease_id)
        return lease_id, begun

    def _await_active(self, lease_id: str, begun: float) -> tuple[float, dict[str, float]]:
        until(partial(self._has_status, lease_id, "ACTIVE"), "the server and its GPUs", TIMEOUT)
        return time.perf_counter() - begun, boots.phases(self._show(lease_id))

    def _await_guest(self, server_id: str, cgpus: int, begun: float) -> float:
        """Wait until the guest prints that it is ready; return the seconds since *begun*."""
        console = CONSOLES / server_id / "console.log"
        message = f"{READY_MESSAGE} {cgpus}."
        until(lambda: message in _read(console), f"the guest to print: {message}", TIMEOUT)
        return time.perf_counter() - begun

    def _placed_server(self, lease_id: str) -> dict[str, str] | None:
        """Return the server of a lease when Nova has chosen a host for it; None before."""
        lease = self._show(lease_id, self._admin)
        assert lease["status"] != "ERROR", lease["fault"]
        server: dict[str, str] = lease["server"]
        return server if server["id"] and server["host"] else None

    def _has_status(self, lease_id: str, status: str) -> bool:
        time.sleep(
            POLL
        )  # each request takes CPU time from the guest, which boots on the same machine
        lease = self._show(lease_id)
        assert lease["status"] != "ERROR", lease["fault"]
        return bool(lease["status"] == status)

    def _show(self, lease_id: str, client: Client | None = None) -> dict[str, Any]:
        lease: dict[str, Any] = _ask(client or self._tenant, "GET", f"/v1/leases/{lease_id}")[
            "lease"
        ]
        return lease


class _BedUser(CloudCredentials):
    """The credentials of one of the test bed's users, in the form that `gsaasclient.Client` takes."""

    def __init__(self, clouds: OpenStackConfig, name: str) -> None:
        self._region = clouds.get_one(name)

    def connect(self) -> CloudTransport:
        return CloudTransport(self._region, self._region.get_session())


@contextmanager
def running() -> Iterator[OpenStackTarget]:
    """Bring up the test bed if it is down, and yield it; afterwards it is left as it was found.

    Raises `subprocess.CalledProcessError` if it does not come up.
    """
    with cli.lent():
        cloud = OpenStackTarget()
        try:
            for _ in range(WARM_UP):
                cloud.add()
            cloud.clear()
            yield cloud
        finally:
            cloud.clear()


def _ask(client: Client, method: str, path: str) -> Any:
    """Send a request until the API answers, so that a restart of the API does not end a run of twenty minutes."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            return client.request(method, path)
        except UnreachableError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL)


def _read(console: Path) -> str:
    """Return the console log of a guest; empty if it does not exist yet."""
    return console.read_text(errors="replace") if console.exists() else ""
