# SPDX-License-Identifier: Apache-2.0
"""A cloud on one machine: a VM is a network namespace, and its compute host is another one.

1. A small file describes each server. It is written before anything is made and removed after everything is gone. So
   repeating a call completes what a crash interrupted.
2. All VMs have the same address, on purpose: RODVR distinguishes them by their taps, as it must in a real cloud, where
   tenants choose addresses.
3. Image, flavor, network and key have no meaning here. `check` returns a note that says so, and refuses none of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gsaas import exceptions
from gsaas.cloud.base import Cloud, Owner, Port, Server, ServerStatus
from gsaas.cloudinit.boot import route_script
from gsaas.context import RequestContext
from gsaas.gpu_host.inventory import HostSpec
from gsaas.standalone import links
from gsaas.standalone.namespaces import Namespaces, namespace_exists
from gsaas.standalone.testbed import VM_BRIDGE, Testbed

VM_ADDRESS = "10.0.0.5/24"
VM_DEVICE = "eth0"

MAKING, MADE, DELETING = "making", "made", "deleting"
_BOOT_TIMEOUT = 30
"""Seconds that the boot script of a VM may take; it takes milliseconds."""

IGNORED_FIELDS = {
    "image": "a standalone VM is a network namespace",
    "flavor": "a standalone VM has this machine's processors and memory",
    "network": "a standalone VM has one interface of its own",
    "key_name": "commands run in a standalone VM with `gsaas exec`, not over SSH",
    "user_data": "stored, but no cloud-init runs in a standalone VM",
}
_ALIASES = {"imageRef": "image", "flavorRef": "flavor", "networks": "network"}


def vm_netns(prefix: str, server_id: str) -> str:
    """Return the name of the network namespace of the server *server_id*."""
    return f"{prefix}vm-{server_id[:8]}"


def choose_host(
    hosts: Sequence[HostSpec], vm_hosts: Sequence[str], wanted: str | None, avoid: Sequence[str]
) -> str:
    """Return the host for a new server: the one with the fewest VMs; among equal ones, one without GPUs.

    *vm_hosts* has the host of each VM. Raises `ServerRefused` if *wanted* and *avoid* leave no host.
    """
    candidates = [h for h in hosts if (wanted is None or h.name == wanted) and h.name not in avoid]
    if not candidates:
        raise exceptions.ServerRefused(
            reason="no compute host may run this server; launch with another locality"
        )
    return min(
        candidates, key=lambda host: (vm_hosts.count(host.name), host.gpus > 0, host.name)
    ).name


@dataclass(frozen=True)
class _ServerRecord:
    """One server, as its file describes it."""

    lease_id: str
    server_id: str
    name: str
    host: str
    port_id: str
    user_data: str
    state: str = MAKING

    @property
    def port(self) -> Port:
        """The server's port; its tap and MAC follow from its id, as in Neutron."""
        return Port(
            id=self.port_id,
            tap=f"tap{self.port_id[:11]}",
            mac="fa:16:3e:" + ":".join(self.port_id[i : i + 2] for i in (0, 2, 4)),
            ip=VM_ADDRESS.partition("/")[0],
        )

    def to_server(self, status: ServerStatus) -> Server:
        return Server(self.server_id, status, self.host, self.port)


class StandaloneCloud(Cloud):
    """Servers on the hosts of *testbed*. Threads may share it.

    *prefix* begins the names of all namespaces, *namespaces* makes and removes them, and *masked_prefix* is the network
    of masked addresses, to which every VM gets a route.
    """

    def __init__(
        self,
        testbed: Testbed,
        prefix: str,
        namespaces: Namespaces,
        state_dir: Path,
        masked_prefix: str,
    ) -> None:
        self._testbed = testbed
        self._prefix = prefix
        self._namespaces = namespaces
        self._folder = state_dir / "servers"
        self._boot_script = route_script(masked_prefix, wait=0)
        self._placement_lock = threading.Lock()
        """Protects the choice of a host until it is on disk, so that concurrent launches spread out."""

    def check(self, context: RequestContext, request: dict[str, Any]) -> list[str]:
        fields = sorted({_ALIASES.get(field, field) for field in request})
        return [
            f"{field}: ignored, {IGNORED_FIELDS[field]}"
            for field in fields
            if field in IGNORED_FIELDS
        ]

    def compute_hosts(self) -> Sequence[str]:
        return [host.name for host in self._testbed.inventory.compute_hosts]

    def create(
        self,
        context: RequestContext,
        owner: Owner,
        request: dict[str, Any],
        user_data: str,
        host: str | None,
        avoid: Sequence[str],
    ) -> Server:
        with self._placement_lock:
            record = self._read(owner.lease_id)
            if record is None:
                record = _ServerRecord(
                    lease_id=owner.lease_id,
                    server_id=str(uuid.uuid4()),
                    name=request["name"],
                    host=choose_host(
                        self._testbed.inventory.compute_hosts,
                        [record.host for record in self._all()],
                        host,
                        avoid,
                    ),
                    port_id=str(uuid.uuid4()),
                    user_data=user_data,
                )
                self._write(record)
        # Making is idempotent, so a call that finds a record of an interrupted one completes it.
        if record.state == MAKING:
            self._make(record)
            record = replace(record, state=MADE)
            self._write(record)
        return record.to_server(ServerStatus.ACTIVE)

    def find(self, owner: Owner) -> Server | None:
        record = self._read(owner.lease_id)
        if record is None:
            return None
        if record.state != MADE:
            return record.to_server(ServerStatus.BUILD)
        # A VM whose namespace another program has deleted is gone, whatever its file says.
        if not namespace_exists(vm_netns(self._prefix, record.server_id)):
            return None
        return record.to_server(ServerStatus.ACTIVE)

    def delete(self, owner: Owner) -> None:
        record = self._read(owner.lease_id)
        if record is None:
            return
        # From here on `find` does not report the server as ACTIVE, even if this call does not complete.
        self._write(replace(record, state=DELETING))
        host = self._testbed.netns(record.host)
        if namespace_exists(host):
            # While a program runs in the VM, the kernel keeps its namespace even without a name. Its connection to the
            # host must not outlive it, so the interface is removed by itself.
            links.remove(host, record.port.tap)
        self._namespaces.remove(vm_netns(self._prefix, record.server_id))
        self._path(record.lease_id).unlink()

    def _make(self, record: _ServerRecord) -> None:
        """Make the VM's namespace, plug its interface into the host's bridge, and run its boot script."""
        vm, port = vm_netns(self._prefix, record.server_id), record.port
        self._namespaces.make(vm)
        links.bring_up_loopback(vm)
        host = self._testbed.netns(record.host)
        links.ensure_veth(host, port.tap, vm, VM_DEVICE)
        links.add_to_bridge(host, port.tap, VM_BRIDGE)
        links.set_address(vm, VM_DEVICE, VM_ADDRESS, mac=port.mac)
        subprocess.run(
            ["ip", "netns", "exec", vm, "/bin/sh"],
            input=self._boot_script,
            text=True,
            check=True,
            capture_output=True,
            timeout=_BOOT_TIMEOUT,
        )

    def _path(self, lease_id: str) -> Path:
        return self._folder / f"{uuid.UUID(lease_id)}.json"

    def _read(self, lease_id: str) -> _ServerRecord | None:
        return _parse(self._path(lease_id))

    def _all(self) -> Iterator[_ServerRecord]:
        for path in self._folder.glob("*.json"):
            if record := _parse(path):
                yield record

    def _write(self, record: _ServerRecord) -> None:
        """Write the record's file atomically: after a crash there is the old one or the new one."""
        path = self._path(record.lease_id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(record)), encoding="utf-8")
        os.replace(draft, path)  # noqa: PTH105


def _parse(path: Path) -> _ServerRecord | None:
    """Return the record in the file *path*; None if there is no such file."""
    try:
        return _ServerRecord(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
