"""What Nova and Neutron say of a server, as the engine's values. Pure."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from gsaas.cloud.base import Port, Server, ServerStatus

Said = Mapping[str, Any]
"""A server or a port, as its service wrote it in JSON."""

GONE = frozenset({"DELETED", "SOFT_DELETED"})
"""Nova's statuses of servers that their owners have deleted, for good or for the time being."""
DELETING = frozenset({"deleting", "soft-deleting"})
"""Nova's task states of servers that are about to be in one of these."""
UNKNOWN = "UNKNOWN"
"""Nova's status of a server whose cell it cannot reach."""
SKEW = datetime.timedelta(seconds=60)
"""By which the clocks of controllers may differ."""
_STATUSES = {
    "BUILD": ServerStatus.BUILD,
    "ERROR": ServerStatus.ERROR,
    "SHELVED_OFFLOADED": ServerStatus.SHELVED,
}


def describe(server: Said, ports: Sequence[Said]) -> Server:
    """The server with the port that carries its binding, chosen from all its *ports*."""
    status = _STATUSES.get(server["status"], ServerStatus.ACTIVE)
    if server.get("OS-EXT-STS:task_state") in DELETING:
        status = ServerStatus.DELETING
    fault = server.get("fault", {}).get("message") if status is ServerStatus.ERROR else None
    host = server.get("OS-EXT-SRV-ATTR:host")
    return Server(server["id"], status, host or None, first_port(server, ports), fault)


def placement(server: Said) -> tuple[str, str | None]:
    """The server's id, and the host it is on; None if it is on none, or gone."""
    gone = server["status"] in GONE
    return server["id"], None if gone else server.get("OS-EXT-SRV-ATTR:host") or None


def first_port(server: Said, ports: Sequence[Said]) -> Port | None:
    """The port of the first network that was asked for; None until it is known, or if it has no IPv4 address.

    Neutron lists ports in no order; Nova lists a server's addresses in the order of its networks.
    """
    order = [
        address["OS-EXT-IPS-MAC:mac_addr"]
        for addresses in server.get("addresses", {}).values()
        for address in addresses
    ]
    by_mac = {port["mac_address"]: port for port in ports}
    first = next((by_mac[mac] for mac in order if mac in by_mac), None)
    if first is None and len(ports) == 1:
        first = ports[0]  # Nova has yet to note its addresses, but there is nothing to choose
    if first is None:
        return None
    ip = next(filter(_is_ipv4, (fixed["ip_address"] for fixed in first["fixed_ips"])), None)
    return ip and Port(first["id"], f"tap{first['id'][:11]}", first["mac_address"], ip)


def oldest(servers: Sequence[Said], since: datetime.datetime) -> Said | None:
    """The first of *servers* that was created no earlier than *since* (UTC) and is not gone.

    Whoever copies a lease's tag to another server can do so only after the first one was made.
    """
    lasting = [
        server
        for server in servers
        if server["status"] not in GONE and _created(server) >= since - SKEW
    ]
    return min(lasting, key=lambda server: (server["created"], server["id"]), default=None)


def _created(server: Said) -> datetime.datetime:
    return datetime.datetime.fromisoformat(server["created"]).replace(tzinfo=None)


def _is_ipv4(address: str) -> bool:
    return ipaddress.ip_address(address).version == 4
