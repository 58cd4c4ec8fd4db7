"""Links inside network namespaces: each function may be repeated, and leaves things as it says."""

from __future__ import annotations

from pyroute2 import IPRoute

from gsaas.netlink.namespace import entered


def loopback(netns: str) -> None:
    """Bring `lo` up."""
    with entered(netns), IPRoute() as ip:
        _up(ip, "lo")


def bridge(netns: str, name: str, *, up: bool = True) -> None:
    """Have a bridge. One that is not up takes every packet of its ports and gives it to nobody."""
    with entered(netns), IPRoute() as ip:
        if not ip.link_lookup(ifname=name):
            ip.link("add", ifname=name, kind="bridge")
        ip.link("set", index=_index(ip, name), state="up" if up else "down")


def cable(netns: str, name: str, other_netns: str, other_name: str) -> None:
    """Have a veth pair between two namespaces, the first end up."""
    with entered(netns), IPRoute() as ip:
        if not ip.link_lookup(ifname=name):
            peer = {"ifname": other_name, "net_ns_fd": other_netns}
            ip.link("add", ifname=name, kind="veth", peer=peer)
        _up(ip, name)


def plug(netns: str, name: str, into: str) -> None:
    """Make *name* a port of the bridge *into*, up."""
    with entered(netns), IPRoute() as ip:
        ip.link("set", index=_index(ip, name), master=_index(ip, into))
        _up(ip, name)


def address(netns: str, name: str, cidr: str, mac: str | None = None) -> None:
    """Give a link an IPv4 address such as 10.0.0.5/24, a MAC, and bring it up."""
    ip_address, _, length = cidr.partition("/")
    with entered(netns), IPRoute() as ip:
        index = _index(ip, name)
        if mac is not None:
            ip.link("set", index=index, address=mac)
        ip.addr("replace", index=index, address=ip_address, prefixlen=int(length))
        _up(ip, name)


def remove(netns: str, name: str) -> None:
    """Remove a link, and with it the other end of a veth pair; none there is fine."""
    with entered(netns), IPRoute() as ip:
        for index in ip.link_lookup(ifname=name):
            ip.link("del", index=index)


def _index(ip: IPRoute, name: str) -> int:
    return ip.link_lookup(ifname=name)[0]


def _up(ip: IPRoute, name: str) -> None:
    ip.link("set", index=_index(ip, name), state="up")
