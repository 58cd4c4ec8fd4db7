"""Identity addresses: which node-local address stands for which VM port on this host.

An identity never leaves the host. It tells ports apart where tenants may use equal addresses, so two
rules matter: an identity is never held by two ports, and one that was given back is used again as
late as possible (counters and old packets may still carry it).
"""

from __future__ import annotations

import ipaddress


class NoIdentityLeft(Exception):
    """Every address of the identity network is held by a port of this host."""


class Identities:
    """Who holds which address of *network*; the network and broadcast addresses are never given."""

    def __init__(self, network: ipaddress.IPv4Network) -> None:
        self._first = int(network.network_address) + 1
        self._count = network.num_addresses - 2
        self._by_port: dict[str, str] = {}
        self._by_address: dict[str, str] = {}
        self._next = 0

    def get(self, port_id: str) -> str | None:
        return self._by_port.get(port_id)

    def ports(self) -> list[str]:
        return list(self._by_port)

    def adopt(self, port_id: str, address: str) -> bool:
        """Take over what an earlier agent gave; False if either side is taken or it is not ours."""
        offset = int(ipaddress.IPv4Address(address)) - self._first
        if not 0 <= offset < self._count:
            return False
        if self._by_port.get(port_id) == address:
            return True
        if port_id in self._by_port or address in self._by_address:
            return False
        self._hold(port_id, address)
        self._next = max(self._next, offset + 1)
        return True

    def allocate(self, port_id: str) -> str:
        """The identity of *port_id*, a new one if it has none; `NoIdentityLeft` if all are held."""
        held = self._by_port.get(port_id)
        if held is not None:
            return held
        for step in range(self._count):
            offset = (self._next + step) % self._count
            address = str(ipaddress.IPv4Address(self._first + offset))
            if address not in self._by_address:
                self._hold(port_id, address)
                self._next = offset + 1
                return address
        raise NoIdentityLeft(f"all {self._count} identity addresses of this host are held")

    def release(self, port_id: str) -> None:
        """Give the identity of *port_id* back; nothing happens if it holds none."""
        address = self._by_port.pop(port_id, None)
        if address is not None:
            del self._by_address[address]

    def _hold(self, port_id: str, address: str) -> None:
        self._by_port[port_id] = address
        self._by_address[address] = port_id
