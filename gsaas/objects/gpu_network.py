# SPDX-License-Identifier: Apache-2.0
"""The GPU network: the addresses at which daemons may be. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_IMPOSSIBLE = {
    "0.0.0.0/8": "the address of no host",
    "127.0.0.0/8": "a loopback address",
    "169.254.0.0/16": "a link-local address",
    "224.0.0.0/4": "a multicast address",
    "240.0.0.0/4": "a reserved address",
}
"""Special-purpose networks (RFC 6890) that no GPU network can contain -> what their addresses are."""
_NETWORKS = {ipaddress.IPv4Network(prefix): what for prefix, what in _IMPOSSIBLE.items()}


@dataclass(frozen=True)
class GpuNetwork:
    """The networks that *prefixes* name; without any, all addresses that a host can have."""

    prefixes: tuple[ipaddress.IPv4Network, ...] = ()
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Host -> the address that it has, by the operator's word; hosts that are left out have any other."""

    @classmethod
    def of(cls, prefixes: Iterable[str], hosts: Mapping[str, str] | None = None) -> GpuNetwork:
        """Return the network of [gpu_network]prefixes and [gpu_network]hosts.

        Raises `ValueError` for text that is no network or address, or cannot be one of the GPU network, and for an
        address of two hosts.
        """
        networks = tuple(map(ipaddress.IPv4Network, prefixes))
        for network in networks:
            for impossible, what in _NETWORKS.items():
                if network.overlaps(impossible):
                    raise ValueError(
                        f"[gpu_network]prefixes: {network} overlaps with {impossible}, whose addresses are each {what}"
                    )
        made = cls(networks, dict(hosts or {}))
        for host, address in made.hosts.items():
            if refusal := made.refusal(address) or made.host_refusal(host, address):
                raise ValueError(f"[gpu_network]hosts: {host}:{address} cannot be: {refusal}")
        return made

    def host_refusal(self, host: str, address: str) -> str | None:
        """Return why *address* cannot be that of *host*, according to the operator's configuration; None if it can."""
        if self.hosts.get(host, address) != address:
            return f"[gpu_network]hosts gives {host} the address {self.hosts[host]}"
        owners = [owner for owner, its in self.hosts.items() if its == address and owner != host]
        return f"[gpu_network]hosts gives it to {owners[0]}" if owners else None

    def refusal(self, address: str) -> str | None:
        """Return why no daemon can be at *address*, as a sentence without a full stop; None if one can.

        Raises `ValueError` if *address* is no IPv4 address.
        """
        ip = ipaddress.IPv4Address(address)
        for impossible, what in _NETWORKS.items():
            if ip in impossible:
                return f"{ip} is {what}"
        if self.prefixes and not any(ip in prefix for prefix in self.prefixes):
            return f"{ip} is not in the GPU network, {', '.join(map(str, self.prefixes))}"
        return None
