"""A cloud on one machine: a VM is a network namespace, and its compute host is another.

1. What a server is stands in a small file, written before anything is made and removed after all is gone; so a crash in
   the middle is found and finished by repeating the call.
2. Every VM has the same address. That is on purpose: RODVR tells them apart by their taps.
3. Image, flavor, network and key mean nothing here. `check` says so, and nothing is refused for it.
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
from gsaas.standalone import links, namespaces
from gsaas.standalone.namespaces import Namespaces
from gsaas.standalone.testbed import VM_BRIDGE, Testbed

VM_ADDRESS = "10.0.0.5/24"
VM_DEVICE = "eth0"

MAKING, MADE, DELETING = "making", "made", "deleting"
_BOOT_PATIENCE = 30
"""Seconds the boot script of a VM may take; it takes milliseconds."""

IGNORED = {
    "image": "a standalone VM is a network namespace",
    "flavor": "a standalone VM has this machine's processors and memory",
    "network": "a standalone VM has one interface of its own",
    "key_name": "a standalone VM is entered with `gsaas exec`, not with SSH",
    "user_data": "kept, but no cloud-init runs in a standalone VM",
}
_SPELLINGS = {"imageRef": "image", "flavorRef": "flavor", "networks": "network"}


def vm_netns(prefix: str, server_id: str) -> str:
    """Name of the network namespace that is the server *server_id*."""
    return f"{prefix}vm-{server_id[:8]}"


def place(
    hosts: Sequence[HostSpec], vms: Sequence[str], wanted: str | None, avoid: Sequence[str]
) -> str:
    """Choose the host of a server: the one with the fewest *vms* (their hosts' names), without GPUs if it can be.

    Raises `ServerRefused` if *wanted* and *avoid* leave none.
    """
    left = [h for h in hosts if (wanted is None or h.name == wanted) and h.name not in avoid]
    if not left:
        raise exceptions.ServerRefused(
            reason="no compute host may run this server; ask for another locality"
        )
    return min(left, key=lambda host: (vms.count(host.name), host.gpus > 0, host.name)).name


@dataclass(frozen=True)
class _Record:
    """One server, as its file says it."""

    lease_id: str
    server_id: str
    name: str
    host: str
    port_id: str
    user_data: str
    state: str = MAKING

    @property
    def port(self) -> Port:
        return Port(
            id=self.port_id,
            tap=f"tap{self.port_id[:11]}",
            mac="fa:16:3e:" + ":".join(self.port_id[i : i + 2] for i in (0, 2, 4)),
            ip=VM_ADDRESS.partition("/")[0],
        )

    def server(self, status: ServerStatus) -> Server:
        return Server(self.server_id, status, self.host, self.port)


class StandaloneCloud(Cloud):
    """Servers on the hosts of *testbed*. Safe to share between threads."""

    def __init__(
        self, testbed: Testbed, prefix: str, owned: Namespaces, state_dir: Path, masked_prefix: str
    ) -> None:
        self._testbed = testbed
        self._prefix = prefix
        self._namespaces = owned
        self._records = state_dir / "servers"
        self._boot_script = route_script(masked_prefix, wait=0)
        self._placing = threading.Lock()

    def check(self, context: RequestContext, request: dict[str, Any]) -> list[str]:
        asked = sorted({_SPELLINGS.get(field, field) for field in request})
        return [f"{field}: ignored, {IGNORED[field]}" for field in asked if field in IGNORED]

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
        with self._placing:
            record = self._read(owner.lease_id)
            if record is None:
                record = _Record(
                    lease_id=owner.lease_id,
                    server_id=str(uuid.uuid4()),
                    name=request["name"],
                    host=place(
                        self._testbed.inventory.compute_hosts,
                        [other.host for other in self._all()],
                        host,
                        avoid,
                    ),
                    port_id=str(uuid.uuid4()),
                    user_data=user_data,
                )
                self._write(record)
        if record.state == MAKING:
            self._make(record)
            record = replace(record, state=MADE)
            self._write(record)
        return record.server(ServerStatus.ACTIVE)

    def find(self, owner: Owner) -> Server | None:
        record = self._read(owner.lease_id)
        if record is None:
            return None
        if record.state != MADE:
            return record.server(ServerStatus.BUILD)
        if not namespaces.exists(vm_netns(self._prefix, record.server_id)):
            return None
        return record.server(ServerStatus.ACTIVE)

    def delete(self, owner: Owner) -> None:
        record = self._read(owner.lease_id)
        if record is None:
            return
        self._write(replace(record, state=DELETING))
        host = self._testbed.netns(record.host)
        if namespaces.exists(host):
            # The namespace may live on without its name while a program runs in it; its interface may not.
            links.remove(host, record.port.tap)
        self._namespaces.remove(vm_netns(self._prefix, record.server_id))
        self._path(record.lease_id).unlink()

    def _make(self, record: _Record) -> None:
        vm, port = vm_netns(self._prefix, record.server_id), record.port
        self._namespaces.make(vm)
        links.loopback(vm)
        host = self._testbed.netns(record.host)
        links.cable(host, port.tap, vm, VM_DEVICE)
        links.plug(host, port.tap, VM_BRIDGE)
        links.address(vm, VM_DEVICE, VM_ADDRESS, mac=port.mac)
        subprocess.run(
            ["ip", "netns", "exec", vm, "/bin/sh"],
            input=self._boot_script,
            text=True,
            check=True,
            capture_output=True,
            timeout=_BOOT_PATIENCE,
        )

    def _path(self, lease_id: str) -> Path:
        return self._records / f"{uuid.UUID(lease_id)}.json"

    def _read(self, lease_id: str) -> _Record | None:
        return _parse(self._path(lease_id))

    def _all(self) -> Iterator[_Record]:
        for path in self._records.glob("*.json"):
            if record := _parse(path):
                yield record

    def _write(self, record: _Record) -> None:
        """Replace the file as a whole: a crash leaves the old one or the new one."""
        path = self._path(record.lease_id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(record)), encoding="utf-8")
        os.replace(draft, path)  # noqa: PTH105


def _parse(path: Path) -> _Record | None:
    try:
        return _Record(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
