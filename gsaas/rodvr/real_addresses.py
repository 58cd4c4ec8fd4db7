# SPDX-License-Identifier: Apache-2.0
"""Which real addresses the mappings of a host may lead to. Pure.

The engine checks real addresses, too. This check stands on its own, because a mapping to an address of the compute host
would let a VM reach the host's services: so the kernel's addresses decide here, not what a message says.

1. A real address is in the GPU network: in the prefixes of the configuration; without any, in the networks that the
   kernel reaches through the GPU NIC, as seen since the endpoint started. (While the NIC is down, its routes are gone.)
2. It is not an address of this host, except that of the GPU NIC, where the daemons of the host's own GPUs listen; and
   there no privileged port, which is a service of the host.
3. It is in none of RODVR's own networks.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from gsaas.objects.address import Address
from gsaas.objects.binding import Binding, LocalBinding
from gsaas.objects.gpu_network import GpuNetwork

_FIRST_UNPRIVILEGED_PORT = 1024


@dataclass(frozen=True)
class HostAddresses:
    """The IPv4 addresses of this host, and what it reaches through its GPU NIC."""

    devices: Mapping[str, str]
    """Own address -> the name of its interface."""
    reached: Set[ipaddress.IPv4Network] = frozenset()
    """Networks of the GPU NIC's addresses and of its routes, without default routes."""


class RealAddresses:
    """Decides where mappings may lead. It knows the addresses of the host once `learn` was called."""

    def __init__(
        self,
        gpu_device: str,
        gpu_network: GpuNetwork,
        reserved: Iterable[ipaddress.IPv4Network] = (),
    ) -> None:
        """*reserved* are RODVR's own networks: masked addresses and identities."""
        self._gpu_device = gpu_device
        self.needs_routes = not gpu_network.prefixes
        """Whether the networks behind the GPU NIC matter."""
        self._reserved = tuple(reserved)
        self._devices: Mapping[str, str] = {}
        self._reached: frozenset[ipaddress.IPv4Network] = frozenset()
        self._network: GpuNetwork | None = gpu_network if gpu_network.prefixes else None
        """None if it is not known."""

    def learn(self, found: HostAddresses) -> None:
        """Take over what the kernel has now."""
        self._devices = found.devices
        self._reached |= found.reached
        if self.needs_routes and self._reached:
            self._network = GpuNetwork(tuple(sorted(self._reached)))

    def check(self, binding: Binding | LocalBinding) -> None:
        """Raise `ValueError` if a mapping of *binding* leads to an address that it must not lead to."""
        for masked, real in binding.mappings.items():
            if refusal := self.refusal(real):
                raise ValueError(f"{masked} is not mapped to {real}: {refusal}")

    def refusal(self, real: Address) -> str | None:
        """Return why nothing may be mapped to *real*, as a sentence without a full stop; None if it may be."""
        if self._network is None:
            return (
                f"the GPU network is not known: {self._gpu_device} has no address and no route, and "
                "[gpu_network]prefixes is not set"
            )
        if refusal := self._network.refusal(real.ip):
            hint = "; set [gpu_network]prefixes if it should be" if self.needs_routes else ""
            return refusal + hint
        ip = ipaddress.IPv4Address(real.ip)
        for reserved in self._reserved:
            if ip in reserved:
                return f"{ip} is in {reserved}, a network of RODVR"
        device = self._devices.get(real.ip)
        if device is not None and device != self._gpu_device:
            return f"{ip} is this host's own address, on {device}"
        if device is not None and real.port < _FIRST_UNPRIVILEGED_PORT:
            return f"{ip} is this host's own address, and {real.port} a port of its services"
        return None
