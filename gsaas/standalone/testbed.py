# SPDX-License-Identifier: Apache-2.0
"""The simulated hosts of gsaas-standalone: a network namespace each, joined by a switch.

    <prefix>gpu1 ── gpu0 ─┐
    <prefix>gpu2 ── gpu0 ─┼─ <prefix>switch
    <prefix>compute1 ─ gpu0 ┘

Nothing is made in the namespace of the process itself. Making everything again changes nothing that exists.
"""

from __future__ import annotations

import ipaddress

from gsaas.gpu_host.inventory import Inventory, InventoryError
from gsaas.standalone import links
from gsaas.standalone.namespaces import Namespaces

GPU_DEVICE = "gpu0"
"""Each host's interface on the GPU network."""
VM_BRIDGE = "vms"
"""Each host's bridge for the taps of its VMs. It is down: so a VM reaches only what RODVR forwards, and its packets
never reach the host's own network stack, on which the daemons of a GPU host listen."""

_SWITCH, _BRIDGE = "switch", "gpunet"


class Testbed:
    """The hosts of *inventory*; *prefix* begins the names of their namespaces."""

    def __init__(self, inventory: Inventory, prefix: str, namespaces: Namespaces) -> None:
        self.inventory = inventory
        self._prefix = prefix
        self._namespaces = namespaces

    def netns(self, host: str) -> str:
        """Return the name of the namespace of *host*."""
        return self._prefix + host

    def set_up(self) -> None:
        """Make all namespaces and interfaces that are missing.

        Raises `ForeignNamespace` if another program has a namespace of such a name, `InventoryError` if hosts were
        made that the inventory no longer declares.
        """
        self._check_existing_hosts()
        switch = self.netns(_SWITCH)
        self._namespaces.make(switch)
        links.ensure_bridge(switch, _BRIDGE)
        length = ipaddress.IPv4Network(self.inventory.gpu_network).prefixlen
        for number, host in enumerate(self.inventory.hosts):
            netns = self.netns(host.name)
            self._namespaces.make(netns)
            links.bring_up_loopback(netns)
            links.ensure_bridge(netns, VM_BRIDGE, up=False)
            links.ensure_veth(netns, GPU_DEVICE, switch, f"port{number}")
            links.add_to_bridge(switch, f"port{number}", _BRIDGE)
            links.set_address(netns, GPU_DEVICE, f"{host.gpu_address}/{length}")

    def _check_existing_hosts(self) -> None:
        """Raise `InventoryError` if a host is no longer declared, because it may still have VMs. New hosts are fine."""
        declared = {self.netns(name) for name in (_SWITCH, *(h.name for h in self.inventory.hosts))}
        for name in self._namespaces.names():
            if name not in declared and not name.startswith(self.netns("vm-")):
                raise InventoryError(
                    f"{name} was made with another inventory or prefix; run with --clean first"
                )
