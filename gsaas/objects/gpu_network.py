# SPDX-License-Identifier: Apache-2.0
"""The GPU network: the addresses at which daemons may be. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

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

    @classmethod
    def of(cls, prefixes: Iterable[str]) -> GpuNetwork:
        """Return the network of [gpu_network]prefixes; `ValueError` for text that is none, or cannot be one."""
        networks = tuple(map(ipaddress.IPv4Network, prefixes))
        for network in networks:
            for impossible, what in _NETWORKS.items():
                if network.overlaps(impossible):
                    raise ValueError(
                        f"[gpu_network]prefixes: {network} overlaps with {impossible}, whose addresses are each {what}"
                    )
        return cls(networks)

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
