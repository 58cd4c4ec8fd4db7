# SPDX-License-Identifier: Apache-2.0
"""The kernel of each host in memory: links, RODVR's tables, the fence's table. It outlives the agents.

`use` puts it behind the interfaces through which the agents reach theirs, `Datapath` and `FenceTable`.
"""

from __future__ import annotations

import errno
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gsaas.gpu_host.fence import fence
from gsaas.gpu_host.fence.layout import FenceLayout
from gsaas.gpu_host.fence.ruleset import rules_per_chain
from gsaas.gpu_host.fence.table import Elements, TableState
from gsaas.netlink.transport import NetlinkRefused
from gsaas.objects.address import Address
from gsaas.objects.daemon import Admission
from gsaas.rodvr import plan
from gsaas.rodvr.config import DatapathConfig
from gsaas.rodvr.kernel import kernel as endpoint_kernel
from gsaas.rodvr.kernel.datapath import DatapathSnapshot
from gsaas.rodvr.kernel.events import Events
from gsaas.rodvr.real_addresses import HostAddresses
from tests.world import baton
from tests.world.baton import Task

GPU_DEVICE = "gpu0"


class HostKernel:
    """What one host's kernel knows."""

    def __init__(self, host: str, address: str) -> None:
        self.host, self.address = host, address
        self.refuses = False
        """The kernel refuses each change: it has no memory."""
        self.links: dict[str, int] = {GPU_DEVICE: 2}
        self.tables: plan.DatapathState | None = None
        """RODVR's; None: there are none."""
        self.connections: dict[plan.Connection, str] = {}
        """Those that VMs have open, each with the port id of the VM."""
        self.local_connections: set[tuple[Address, Address]] = set()
        """Those that the host's own programs have open: masked and real address."""
        self.admitted: Elements | None = None
        """The fence's; None: there is no fence."""
        self.fence_comment = ""
        self.watches: list[MemoryWatch] = []
        self._indexes = itertools.count(10)

    def add_link(self, tap: str) -> None:
        self.links[tap] = next(self._indexes)
        self._announce(tap)

    def remove_link(self, tap: str) -> None:
        index = self.links.pop(tap, None)
        if index is None:
            return
        if self.tables is not None:
            tag = self.tables.chains.pop(tap, None)  # a chain goes with its device
            if tag is not None:
                self._disconnect(tag.port_id)
        for watch in self.watches:
            watch.tell(index, tap)

    def _announce(self, tap: str) -> None:
        for watch in self.watches:
            watch.tell(self.links[tap], tap)

    def change(self, what: str) -> None:
        """Pass a point, before a change of the kernel; raises `NetlinkRefused`."""
        baton.here().point()
        if self.refuses:
            raise NetlinkRefused(errno.ENOMEM, what)

    def mapped(self) -> Iterator[tuple[str, Address]]:
        """Yield port id and real address of each mapping that a VM's packets find."""
        if self.tables is None:
            return
        for tag in self.tables.chains.values():
            if tag is not None:
                for _, real in sorted(self.tables.mappings.get(tag.identity, {}).items()):
                    yield tag.port_id, real

    def mapped_locally(self) -> Iterator[tuple[Address, Address]]:
        """Yield masked and real address of each mapping that packets of the host's own programs find."""
        if self.tables is not None:
            for key, real in sorted(self.tables.local_mappings.items(), key=str):
                yield key.masked, real

    def connect(self, draw: random.Random) -> plan.Connection | tuple[Address, Address] | None:
        """Have a VM or a program open a connection where its tables lead it; None if they lead nobody anywhere."""
        tables = self.tables or plan.DatapathState()
        tags = [each for each in tables.chains.values() if each is not None]
        vms = {
            plan.Connection(tag.identity, masked, real): tag.port_id
            for tag in tags
            for masked, real in tables.mappings.get(tag.identity, {}).items()
        }
        programs = [(key.masked, real) for key, real in tables.local_mappings.items()]
        if not vms and not programs:
            return None
        chosen = draw.choice(sorted([*vms, *programs], key=str))
        if isinstance(chosen, plan.Connection):
            self.connections[chosen] = vms[chosen]
        else:
            self.local_connections.add(chosen)
        return chosen

    def disconnect(self, connection: plan.Connection | tuple[Address, Address]) -> None:
        """Have its client close a connection."""
        if isinstance(connection, plan.Connection):
            self.connections.pop(connection, None)
        else:
            self.local_connections.discard(connection)

    def _disconnect(self, port_id: str) -> None:
        self.connections = {
            each: port for each, port in self.connections.items() if port != port_id
        }


class MemoryWatch:
    """`gsaas.rodvr.kernel.events.Watch`."""

    def __init__(self, kernel: HostKernel) -> None:
        self._kernel = kernel
        self._events = Events()
        self._woken = False
        self._waiting: list[Task] = []
        kernel.watches.append(self)

    def tell(self, index: int, name: str) -> None:
        self._events.links[index] = name
        baton.here().wake(self._waiting)

    def watch_tables(self) -> None:
        """RODVR owns its tables here."""

    def wake(self) -> None:
        self._woken = True
        baton.here().wake(self._waiting)

    def wait(self, seconds: float) -> Events:
        scheduler = baton.here()
        scheduler.point()
        if not (self._woken or self._events.links):
            scheduler.wait(self._waiting, scheduler.now + max(0.0, seconds))
        self._woken = False
        found, self._events = self._events, Events()
        return found

    def close(self) -> None:
        if self in self._kernel.watches:
            self._kernel.watches.remove(self)


class MemoryDatapath:
    """`gsaas.rodvr.kernel.datapath.Datapath`."""

    gpu_device = GPU_DEVICE
    protected = True
    own_links = frozenset({GPU_DEVICE})
    port_id = 1

    def __init__(self, kernel: HostKernel) -> None:
        self._kernel = kernel

    def watch(self) -> MemoryWatch:
        return MemoryWatch(self._kernel)

    def close(self) -> None:
        """What is in the kernel stays there."""

    def index(self, tap: str) -> int | None:
        return self._kernel.links.get(tap)

    def gpu_address(self) -> str | None:
        return self._kernel.address

    def host_addresses(self, *, routes: bool) -> HostAddresses:
        return HostAddresses({self._kernel.address: GPU_DEVICE})

    def prepare(self) -> bool:
        baton.here().point()
        return self._kernel.tables is not None

    def read(self) -> DatapathSnapshot:
        baton.here().point()
        tables = self._kernel.tables
        if tables is None:
            return DatapathSnapshot(plan.DatapathState(), intact=False)
        return DatapathSnapshot(tables.copy(), intact=True)

    def apply(self, operations: Iterable[plan.Operation], *, rebuild: bool = False) -> None:
        kernel = self._kernel
        kernel.change("change the tables")
        if kernel.tables is None and not rebuild:
            raise NetlinkRefused(errno.ENOENT, "change the tables")
        changed = plan.DatapathState() if rebuild or kernel.tables is None else kernel.tables.copy()
        for operation in operations:
            _check(changed, operation, kernel)
            changed.commit([operation])
        kernel.tables = changed
        baton.here().effect("kernel")

    def cut(self, cuts: Iterable[plan.Cut | plan.LocalCut], *, silently: bool = False) -> None:
        self._kernel.change("cut connections")
        kernel = self._kernel
        for cut in cuts:
            if isinstance(cut, plan.Cut):
                kernel.connections = {
                    each: port_id
                    for each, port_id in kernel.connections.items()
                    if each.identity != cut.identity or cut.masked not in (None, each.masked)
                }
            else:
                kernel.local_connections = {
                    each for each in kernel.local_connections if each[0] != cut.masked
                }
        baton.here().effect("kernel")

    def forget_strays(self) -> None:
        """There are none."""

    def connections(self) -> list[plan.Connection]:
        return sorted(self._kernel.connections, key=str)

    def local_connections(self) -> list[tuple[Address, Address]]:
        return sorted(self._kernel.local_connections, key=str)

    def open_connections(self) -> dict[str, int]:
        return dict(Counter(each.identity for each in self._kernel.connections))

    def open_local_connections(self) -> dict[Address, int]:
        return dict(Counter(masked for masked, _ in self._kernel.local_connections))

    def reset_unmapped(self, identity: str) -> None:
        """Nothing is counted."""

    def reset_unmapped_local(self, masked: object) -> None:
        """Nothing is counted."""

    def unmapped(self) -> dict[str, int]:
        return {}

    unmapped_local = tap_counters = strangers = received = unmapped

    def conntrack_level(self) -> None:
        return None

    def obstacles(self, samples: object) -> list[str]:
        return []


def _check(tables: plan.DatapathState, operation: plan.Operation, kernel: HostKernel) -> None:
    """Refuse what the kernel refuses: an element that is there already, one that is not, a chain without its device."""
    refused: int | None = None
    match operation:
        case plan.AddChain(tap, _):
            if kernel.links.get(tap) is None:
                refused = errno.ENODEV
            elif tap in tables.chains:
                refused = errno.EEXIST
        case plan.DeleteChain(tap):
            refused = None if tap in tables.chains else errno.ENOENT
        case plan.AddReturnPath(identity, path):
            present = tables.return_paths.get(identity)
            refused = None if present in (None, path) else errno.EEXIST
        case plan.DeleteReturnPath(identity):
            refused = None if identity in tables.return_paths else errno.ENOENT
        case plan.AddMappings(identity, mappings):
            held = tables.mappings.get(identity, {})
            if any(held.get(masked, real) != real for masked, real in mappings.items()):
                refused = errno.EEXIST
        case plan.DeleteMappings(identity, addresses):
            if set(addresses) - tables.mappings.get(identity, {}).keys():
                refused = errno.ENOENT
        case plan.DeleteLocalMappings(keys):
            refused = errno.ENOENT if set(keys) - tables.local_mappings.keys() else None
        case _:
            pass
    if refused is not None:
        raise NetlinkRefused(refused, str(operation))


class MemoryFenceTable:
    """`gsaas.gpu_host.fence.table.FenceTable`."""

    def __init__(self, kernel: HostKernel) -> None:
        self._kernel = kernel

    def close(self) -> None:
        """The table stays."""

    def read(self, layout: FenceLayout) -> TableState | None:
        kernel = self._kernel
        kernel.change("read the fence")
        if kernel.admitted is None:
            return None
        return TableState(kernel.fence_comment, True, kernel.admitted, 0)

    def rebuild(self, layout: FenceLayout, wanted: Elements) -> None:
        self._kernel.change("build the fence")
        rules_per_chain(layout)
        self._kernel.admitted, self._kernel.fence_comment = wanted, layout.comment
        baton.here().effect("kernel")

    def change(self, add: Elements, remove: Elements) -> None:
        kernel = self._kernel
        kernel.change("change the fence")
        present = kernel.admitted
        if present is None:
            raise NetlinkRefused(errno.ENOENT, "change the fence")
        if (remove - present) != Elements():
            raise NetlinkRefused(errno.ENOENT, "remove elements of the fence")
        kept = present - remove
        kernel.admitted = Elements(kept.admitted | add.admitted, kept.listeners | add.listeners)
        baton.here().effect("kernel")


def use(kernels: Callable[[str], HostKernel]) -> None:
    """Have the agents reach the kernel of the host that their configuration names as network namespace."""

    def datapath(config: DatapathConfig) -> MemoryDatapath:
        return MemoryDatapath(kernels(config.netns or ""))

    def table(netns: str | None) -> MemoryFenceTable:
        return MemoryFenceTable(kernels(netns or ""))

    def destroy(netns: str | None, removed: Iterable[Admission], *, here: str) -> int:
        return 0

    modules: list[tuple[Any, str, object]] = [
        (endpoint_kernel, "Datapath", datapath),
        (fence, "FenceTable", table),
        (fence.sockets, "destroy", destroy),
    ]
    for module, name, value in modules:
        setattr(module, name, value)
