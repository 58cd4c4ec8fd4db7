# SPDX-License-Identifier: Apache-2.0
"""Make and remove network interfaces inside network namespaces. Every function is idempotent."""

from __future__ import annotations

from pyroute2 import IPRoute

from gsaas.netlink.namespace import entered


def bring_up_loopback(netns: str) -> None:
    """Bring the interface `lo` of *netns* up."""
    with entered(netns), IPRoute() as ip:
        _up(ip, "lo")


def ensure_bridge(netns: str, name: str, *, up: bool = True) -> None:
    """Make the bridge *name* unless it exists. A bridge that is down accepts packets from its ports and drops them."""
    with entered(netns), IPRoute() as ip:
        if not ip.link_lookup(ifname=name):
            ip.link("add", ifname=name, kind="bridge")
        ip.link("set", index=_index(ip, name), state="up" if up else "down")


def ensure_veth(netns: str, name: str, peer_netns: str, peer_name: str) -> None:
    """Make a veth pair between two namespaces unless it exists, and bring the end in *netns* up."""
    with entered(netns), IPRoute() as ip:
        if not ip.link_lookup(ifname=name):
            peer = {"ifname": peer_name, "net_ns_fd": peer_netns}
            ip.link("add", ifname=name, kind="veth", peer=peer)
        _up(ip, name)


def add_to_bridge(netns: str, name: str, bridge: str) -> None:
    """Make the interface *name* a port of *bridge*, and bring it up."""
    with entered(netns), IPRoute() as ip:
        ip.link("set", index=_index(ip, name), master=_index(ip, bridge))
        _up(ip, name)


def set_address(netns: str, name: str, cidr: str, mac: str | None = None) -> None:
    """Give an interface an IPv4 address such as 10.0.0.5/24, and a MAC if given; bring it up."""
    ip_address, _, length = cidr.partition("/")
    with entered(netns), IPRoute() as ip:
        index = _index(ip, name)
        if mac is not None:
            ip.link("set", index=index, address=mac)
        ip.addr("replace", index=index, address=ip_address, prefixlen=int(length))
        _up(ip, name)


def remove(netns: str, name: str) -> None:
    """Remove an interface if it exists, and with it the other end of a veth pair."""
    with entered(netns), IPRoute() as ip:
        for index in ip.link_lookup(ifname=name):
            ip.link("del", index=index)


def _index(ip: IPRoute, name: str) -> int:
    indexes: list[int] = ip.link_lookup(ifname=name)
    return indexes[0]


def _up(ip: IPRoute, name: str) -> None:
    ip.link("set", index=_index(ip, name), state="up")
