# SPDX-License-Identifier: Apache-2.0
"""Identity addresses: which node-local address stands for which VM port on this host.

An identity never leaves the host. It distinguishes ports where tenants may use equal addresses, so two
rules matter: two ports never have the same identity, and one that was released is used again as late as
possible, because counters and old packets may still carry it.
"""

from __future__ import annotations

import ipaddress


class NoIdentityLeft(Exception):
    """Every address of the identity network is assigned to a port of this host."""


class Identities:
    """Assigns addresses of *network* to ports, except the network address and the broadcast address."""

    def __init__(self, network: ipaddress.IPv4Network) -> None:
        self._first = int(network.network_address) + 1
        self._count = network.num_addresses - 2
        self._by_port: dict[str, str] = {}
        self._by_address: dict[str, str] = {}
        self._next_offset = 0

    def get(self, port_id: str) -> str | None:
        """Return the identity of *port_id*, None if it has none."""
        return self._by_port.get(port_id)

    def ports(self) -> list[str]:
        """Return the ids of all ports that have an identity."""
        return list(self._by_port)

    def adopt(self, port_id: str, address: str) -> bool:
        """Assign the address that an earlier process assigned to *port_id*; return whether it is assigned now.

        It is not if it is outside the network, if another port has it, or if the port has another one.
        """
        offset = int(ipaddress.IPv4Address(address)) - self._first
        if not 0 <= offset < self._count:
            return False
        if self._by_port.get(port_id) == address:
            return True
        if port_id in self._by_port or address in self._by_address:
            return False
        self._assign(port_id, address)
        self._next_offset = max(self._next_offset, offset + 1)
        return True

    def allocate(self, port_id: str) -> str:
        """Return the identity of *port_id*, a new one if it has none; `NoIdentityLeft` if all are assigned."""
        assigned = self._by_port.get(port_id)
        if assigned is not None:
            return assigned
        for step in range(self._count):
            offset = (self._next_offset + step) % self._count
            address = str(ipaddress.IPv4Address(self._first + offset))
            if address not in self._by_address:
                self._assign(port_id, address)
                self._next_offset = offset + 1
                return address
        raise NoIdentityLeft(f"all {self._count} identity addresses of this host are assigned")

    def release(self, port_id: str) -> None:
        """Release the identity of *port_id*; without one, do nothing."""
        address = self._by_port.pop(port_id, None)
        if address is not None:
            del self._by_address[address]

    def _assign(self, port_id: str, address: str) -> None:
        self._by_port[port_id] = address
        self._by_address[address] = port_id
