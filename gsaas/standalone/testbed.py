"""The simulated hosts of gsaas-standalone: a network namespace each, joined by a switch.

    <prefix>gpu1 ── gpu0 ─┐
    <prefix>gpu2 ── gpu0 ─┼─ <prefix>switch
    <prefix>compute1 ─ gpu0 ┘

Nothing is made in the namespace that the process runs in. Everything can be made again over what is there.
"""

from __future__ import annotations

import ipaddress

from gsaas.gpu_host.inventory import Inventory, InventoryError
from gsaas.standalone import links
from gsaas.standalone.namespaces import Namespaces

GPU_DEVICE = "gpu0"
"""Each host's interface on the GPU network."""
VM_BRIDGE = "vms"
"""Where the taps of a host's VMs are plugged in. It is down: a VM has no network but what RODVR carries, and its
packets never reach the host's own stack, which on a GPU host would be the daemons'."""

_SWITCH, _BRIDGE = "switch", "gpunet"


class Testbed:
    """The hosts of *inventory*, named with *prefix*."""

    def __init__(self, inventory: Inventory, prefix: str, namespaces: Namespaces) -> None:
        self.inventory = inventory
        self._prefix = prefix
        self._namespaces = namespaces

    def netns(self, host: str) -> str:
        """Name of the namespace that is *host*."""
        return self._prefix + host

    def set_up(self) -> None:
        """Make what is missing.

        Raises `NotOurs` when a name is taken, `InventoryError` when hosts were made that are no longer declared.
        """
        self._check_what_is_there()
        switch = self.netns(_SWITCH)
        self._namespaces.make(switch)
        links.bridge(switch, _BRIDGE)
        length = ipaddress.IPv4Network(self.inventory.gpu_network).prefixlen
        for number, host in enumerate(self.inventory.hosts):
            netns = self.netns(host.name)
            self._namespaces.make(netns)
            links.loopback(netns)
            links.bridge(netns, VM_BRIDGE, up=False)
            links.cable(netns, GPU_DEVICE, switch, f"port{number}")
            links.plug(switch, f"port{number}", _BRIDGE)
            links.address(netns, GPU_DEVICE, f"{host.gpu_address}/{length}")

    def _check_what_is_there(self) -> None:
        """Hosts may be added, but VMs could be left behind on one that is declared no more."""
        declared = {self.netns(name) for name in (_SWITCH, *(h.name for h in self.inventory.hosts))}
        for name in self._namespaces.names():
            if name not in declared and not name.startswith(self.netns("vm-")):
                raise InventoryError(
                    f"{name} was made with another inventory or prefix; run with --clean first"
                )
