# SPDX-License-Identifier: Apache-2.0
"""Identity addresses: which node-local address stands for which address of which VM port on this host.

An identity never leaves the host. It distinguishes ports where tenants may use equal addresses, so two
rules matter: two ports never have the same identity, and one that was released is used again as late as
possible, because counters and old packets may still carry it.

A port has an identity for its first address, whatever that is, and one for each further address: replies to an identity
go to one address.
"""

from __future__ import annotations

import ipaddress


class NoIdentityLeft(Exception):
    """Every address of the identity network is assigned to a port of this host."""


Holder = tuple[str, str]
"""What has an identity: a port, and one of its addresses; an empty text stands for the first."""


class Identities:
    """Assigns addresses of *network* to ports, except the network address and the broadcast address.

    *ip* names one of a port's further addresses.
    """

    def __init__(self, network: ipaddress.IPv4Network) -> None:
        self._first = int(network.network_address) + 1
        self._count = network.num_addresses - 2
        self._by_port: dict[str, dict[str, str]] = {}
        """Port id -> address of the port, empty for the first -> identity."""
        self._holders: dict[str, Holder] = {}
        """By identity."""
        self._next_offset = 0

    def get(self, port_id: str, ip: str = "") -> str | None:
        """Return the identity of *port_id*, None if it has none."""
        return self._by_port.get(port_id, {}).get(ip)

    def of_port(self, port_id: str) -> list[str]:
        """Return all identities of *port_id*."""
        return list(self._by_port.get(port_id, {}).values())

    def all(self) -> list[tuple[str, Holder]]:
        """Return all identities that are assigned, each with what it is assigned to."""
        return list(self._holders.items())

    def adopt(self, port_id: str, address: str, ip: str = "") -> bool:
        """Assign the address that an earlier process assigned to *port_id*; return whether it is assigned now.

        It is not if it is outside the network, if another port has it, or if the port has another one.
        """
        offset = int(ipaddress.IPv4Address(address)) - self._first
        if not 0 <= offset < self._count:
            return False
        assigned = self.get(port_id, ip)
        if assigned is not None or address in self._holders:
            return assigned == address
        self._assign(port_id, ip, address)
        self._next_offset = max(self._next_offset, offset + 1)
        return True

    def allocate(self, port_id: str, ip: str = "") -> str:
        """Return the identity of *port_id*, a new one if it has none; `NoIdentityLeft` if all are assigned."""
        assigned = self.get(port_id, ip)
        if assigned is not None:
            return assigned
        for step in range(self._count):
            offset = (self._next_offset + step) % self._count
            address = str(ipaddress.IPv4Address(self._first + offset))
            if address not in self._holders:
                self._assign(port_id, ip, address)
                self._next_offset = offset + 1
                return address
        raise NoIdentityLeft(f"all {self._count} identity addresses of this host are assigned")

    def release(self, port_id: str, ip: str = "") -> None:
        """Release the identity of *port_id*; without one, do nothing."""
        assigned = self._by_port.get(port_id, {})
        address = assigned.pop(ip, None)
        if address is not None:
            del self._holders[address]
        if not assigned:
            self._by_port.pop(port_id, None)

    def _assign(self, port_id: str, ip: str, address: str) -> None:
        self._by_port.setdefault(port_id, {})[ip] = address
        self._holders[address] = port_id, ip
