# SPDX-License-Identifier: Apache-2.0
"""Translate Nova's and Neutron's descriptions of a server into the engine's values. Pure."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from gsaas.cloud import server_tags
from gsaas.cloud.base import ListedServer, Owner, Port, Server, ServerChange, ServerStatus
from gsaas.objects import plain_server
from gsaas.objects.plain_server import PlainServer

Document = Mapping[str, Any]
"""A server of Nova's API or a port of Neutron's, decoded from JSON."""

GONE = frozenset({"DELETED", "SOFT_DELETED"})
"""Nova's statuses of servers that their owners have deleted, finally or so that they can be restored."""
DELETING = frozenset({"deleting", "soft-deleting"})
"""Nova's task states of servers that are about to get one of the statuses `GONE`."""
UNKNOWN = "UNKNOWN"
"""Nova's status of a server whose cell it cannot reach."""
SKEW = datetime.timedelta(seconds=60)
"""How far the clocks of controllers may differ."""
_USER_DATA = "OS-EXT-SRV-ATTR:user_data"
_USABLE = frozenset({"BUILD", "ACTIVE", "REBUILD"})
"""Nova's statuses of servers that are being built or run."""
_STATUSES = {
    "BUILD": ServerStatus.BUILD,
    "ERROR": ServerStatus.ERROR,
    "SHELVED_OFFLOADED": ServerStatus.SHELVED,
}


def describe(server: Document, ports: Sequence[Document]) -> Server:
    """Return the server, with the port that carries its binding, chosen from all its *ports*."""
    status = _STATUSES.get(server["status"], ServerStatus.ACTIVE)
    if server.get("OS-EXT-STS:task_state") in DELETING:
        status = ServerStatus.DELETING
    fault, failed_at = None, None
    if status is ServerStatus.ERROR:
        fault = server.get("fault", {}).get("message")
        failed_at = _time(server["updated"])
    host = server.get("OS-EXT-SRV-ATTR:host")
    first = _first(server, ports)
    port = None if first is None else _port(first)
    lacks_ipv4 = first is not None and port is None
    return Server(server["id"], status, host or None, port, fault, lacks_ipv4, failed_at)


def plain(server: Document) -> PlainServer:
    """Return what decides whether a server gets cGPUs as a plain one."""
    deleting = server.get("OS-EXT-STS:task_state") in DELETING
    return PlainServer(
        id=server["id"],
        project_id=server["tenant_id"],
        user_id=server["user_id"],
        name=server["name"],
        host=server.get("OS-EXT-SRV-ATTR:host") or None,
        is_usable=server["status"] in _USABLE and not deleting,
        lease_id=server_tags.lease_of(server.get("tags", ())),
        extra_specs=_extra_specs(server),
        metadata=server.get("metadata", {}),
    )


def change(server: Document) -> ServerChange:
    """Return a server of a list of those that have changed."""
    asks = plain_server.asks(_extra_specs(server), server.get("metadata", {}))
    at = _time(server["updated"]) if "updated" in server else None
    return ServerChange(server["id"], server_tags.lease_of(server.get("tags", ())), asks, at)


def listed(server: Document) -> ListedServer:
    """Return a server of a list of all servers."""
    tags = server_tags.leases_of(server.get("tags", ()))
    host = server.get("OS-EXT-SRV-ATTR:host") or None
    return ListedServer(server["id"], server["tenant_id"], host, frozenset(tags))


def placement(server: Document) -> tuple[str, str | None]:
    """Return the server's id and its host; the host is None if the server has none or is deleted."""
    gone = server["status"] in GONE
    return server["id"], None if gone else server.get("OS-EXT-SRV-ATTR:host") or None


def _first(server: Document, ports: Sequence[Document]) -> Document | None:
    """Return the port of the first requested network; None until it is known.

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
        first = ports[0]  # Nova does not list its addresses yet, but there is nothing to choose
    return first


def _port(port: Document) -> Port | None:
    """Return a port of Neutron's as the engine needs it; None if it has no IPv4 address."""
    ips = list(filter(_is_ipv4, (fixed["ip_address"] for fixed in port["fixed_ips"])))
    if not ips:
        return None
    return Port(
        port["id"], f"tap{port['id'][:11]}", port["mac_address"], ips[0], tuple(sorted(ips[1:]))
    )


def oldest(servers: Sequence[Document], since: datetime.datetime) -> Document | None:
    """Return the oldest of *servers* that was created no earlier than *since* (UTC) and is not deleted.

    A tenant may copy a lease's tag to another server, but only after the lease's own server was made: so the oldest is
    the lease's.
    """
    existing = [
        server
        for server in servers
        if server["status"] not in GONE and _time(server["created"]) >= since - SKEW
    ]
    return min(existing, key=lambda server: (server["created"], server["id"]), default=None)


def is_second(second: Document, own: Document, owner: Owner) -> bool:
    """Return whether *second* was made for the lease of *owner*, which has the server *own*.

    Its owner can set any tag, but only GSaaS writes the user data of a lease, which names it.
    """
    user_data = own.get(_USER_DATA)
    return (
        second["id"] != own["id"]
        and {second["tenant_id"], own["tenant_id"]} == {owner.project_id}
        and owner.lease_id in server_tags.leases_of(second.get("tags", ()))
        and bool(user_data)
        and second.get(_USER_DATA) == user_data
    )


def _extra_specs(server: Document) -> Mapping[str, str]:
    """Return the extra specs of a server's flavor; none if Nova does not show them to the one who asked."""
    specs: Mapping[str, str] = server.get("flavor", {}).get("extra_specs") or {}
    return specs


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=None)


def _is_ipv4(address: str) -> bool:
    return ipaddress.ip_address(address).version == 4
