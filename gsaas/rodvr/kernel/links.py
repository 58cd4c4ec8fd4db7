"""The veth pair, its route and the per-device settings; names of taps to their indexes.

Only devices are configured, never the host: forwarding is switched on for rodvr1 and the GPU NIC
alone. What the GPU NIC had before is written into rodvr0's alias, where any later process (and any
operator, with `ip link`) finds it, so that `remove` can put it back.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from gsaas.netlink.namespace import entered
from gsaas.netlink.transport import Refused
from gsaas.rodvr.kernel.ruleset import INNER, INNER_MAC, OUTER, OUTER_MAC

MTU = 65535
"""veth drops what is longer than its MTU and not segmentable, so the pair must never be the limit."""
_SIOCGIFINDEX = 0x8933
_SIOCGIFADDR = 0x8915
_NAME_SIZE = 16
_PERMANENT = 0x80
_UP = 0x1
_LINK_SCOPE = 253
PROTOCOL = 71
"""Marks our routes: `ip route show proto 71`. The number is nobody else's in iproute2's list."""
_ALIAS = re.compile(r"rodvr: (\S+) forwarding was ([01])")


class Links:
    """Links of one network namespace. Safe to share between threads."""

    def __init__(self, netns: str | None = None) -> None:
        self._netns = netns
        with entered(netns):
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def close(self) -> None:
        self._socket.close()

    def index(self, name: str) -> int | None:
        """The interface index of *name*, None if there is none; `ValueError` if there cannot be."""
        if not 0 < len(name.encode()) < _NAME_SIZE:
            raise ValueError(f"{name!r} is no interface name: it has to have 1 to 15 bytes")
        request = struct.pack("16si20x", name.encode(), 0)
        try:
            answer = fcntl.ioctl(self._socket, _SIOCGIFINDEX, request)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            return None
        return int(struct.unpack_from("16si", answer)[1])

    def address(self, name: str) -> str | None:
        """The first IPv4 address of *name*; None if it has none, or is not there."""
        request = struct.pack("16s24x", name.encode())
        try:
            answer = fcntl.ioctl(self._socket, _SIOCGIFADDR, request)
        except OSError as error:
            if error.errno not in (errno.ENODEV, errno.EADDRNOTAVAIL):
                raise
            return None
        return socket.inet_ntoa(answer[20:24])

    def ensure_pair(self, identity_network: ipaddress.IPv4Network) -> int:
        """Make the pair, its neighbour and its route be there; the index of rodvr0.

        What is right already is not touched: others listen to changes of routes and links.
        """
        with self._routing(f"set up {OUTER} and {INNER}") as route:
            if self.index(OUTER) is None:
                peer = {"ifname": INNER, "mtu": MTU}
                route.link("add", ifname=OUTER, kind="veth", mtu=MTU, peer=peer)
            outer, inner = self._existing(OUTER), self._existing(INNER)
            _ensure_link(route, outer, OUTER_MAC, arp=True)
            _ensure_link(route, inner, INNER_MAC, arp=False)
        with self._routing(f"route {identity_network} to {INNER} (is lo up?)") as route:
            _ensure_route(route, inner, identity_network)
        for device in (OUTER, INNER):
            # Nothing but forwarded IPv4 belongs here; a host without IPv6 has no such file.
            with suppress(FileNotFoundError):
                self._set(f"ipv6/conf/{device}/disable_ipv6", "1")
        self._set(f"ipv4/conf/{INNER}/forwarding", "1")
        return outer

    def ensure_route(self, device: str, prefix: ipaddress.IPv4Network) -> None:
        """Have connections of this host to *prefix* leave by *device*, with its address and its MTU.

        Without such a device there is none; a link event tells when it comes.
        """
        index = self.index(device)
        if index is None:
            return
        with self._routing(f"route {prefix} to {device}") as route:
            link = route.get_links(index)[0]
            if not link["flags"] & _UP or _routes_of_ours(route, prefix) == [index]:
                return
            route.route("replace", dst=str(prefix), oif=index, scope=_LINK_SCOPE, proto=PROTOCOL)

    def forwarding(self, device: str) -> bool:
        """Whether *device* forwards; `FileNotFoundError` if there is no such device."""
        return self._read(f"ipv4/conf/{device}/forwarding") == "1"

    def set_forwarding(self, device: str, on: bool) -> None:
        self._set(f"ipv4/conf/{device}/forwarding", "1" if on else "0")

    def remember_forwarding(self, device: str, was: bool) -> None:
        with self._routing(f"write the alias of {OUTER}") as route:
            alias = f"rodvr: {device} forwarding was {int(was)}"
            route.link("set", index=self._existing(OUTER), ifalias=alias)

    def remembered_forwarding(self) -> tuple[str, bool] | None:
        """(GPU NIC, whether it forwarded before RODVR), None if nothing was remembered."""
        index = self.index(OUTER)
        if index is None:
            return None
        with self._routing(f"read the alias of {OUTER}") as route:
            alias = route.get_links(index)[0].get_attr("IFLA_IFALIAS") or ""
        match = _ALIAS.fullmatch(alias)
        return (match[1], match[2] == "1") if match else None

    def restore_forwarding(self) -> None:
        """Give the remembered GPU NIC the setting it had before RODVR."""
        remembered = self.remembered_forwarding()
        if remembered is not None:
            device, was = remembered
            with suppress(FileNotFoundError):  # the NIC is gone, and its setting with it
                self.set_forwarding(device, was)

    def loose_pickup(self) -> bool:
        """Whether connection tracking takes up connections in their middle, as it does by default."""
        try:
            return self._read("netfilter/nf_conntrack_tcp_loose") != "0"
        except FileNotFoundError:
            return True

    def legacy_tables(self) -> list[str]:
        """iptables-legacy tables in use here; empty also where we may not read which."""
        try:
            with entered(self._netns):
                return Path("/proc/thread-self/net/ip_tables_names").read_text().split()
        except (FileNotFoundError, PermissionError):
            return []

    def remove(self, prefix: ipaddress.IPv4Network) -> None:
        """Delete the pair; neighbour, route and settings go with it. GPU NIC as it was before, and
        no route to *prefix*."""
        self.restore_forwarding()
        with self._routing(f"delete the route to {prefix}") as route:
            for index in _routes_of_ours(route, prefix):
                route.route("del", dst=str(prefix), oif=index, scope=_LINK_SCOPE, proto=PROTOCOL)
        index = self.index(OUTER)
        if index is not None:
            with self._routing(f"delete {OUTER}") as route:
                route.link("del", index=index)

    @contextmanager
    def _routing(self, what: str) -> Iterator[IPRoute]:
        """A routing socket in our namespace, whose errors say *what* was being done."""
        try:
            with entered(self._netns), IPRoute() as route:
                yield route
        except NetlinkError as error:
            raise Refused(error.code, what) from error

    def _existing(self, name: str) -> int:
        index = self.index(name)
        if index is None:
            raise OSError(errno.ENODEV, f"there is no interface {name}, though its peer is there")
        return index

    def _read(self, key: str) -> str:
        with entered(self._netns):
            return (Path("/proc/sys/net") / key).read_text().strip()

    def _set(self, key: str, value: str) -> None:
        with entered(self._netns):
            path = Path("/proc/sys/net") / key
            if path.read_text().strip() != value:
                path.write_text(value)


def _routes_of_ours(route: IPRoute, prefix: ipaddress.IPv4Network) -> list[int]:
    """The interfaces of our routes to *prefix*."""
    network = str(prefix.network_address)
    return [
        found.get_attr("RTA_OIF")
        for found in route.get_routes(family=socket.AF_INET, proto=PROTOCOL)
        if (found.get_attr("RTA_DST"), found["dst_len"]) == (network, prefix.prefixlen)
    ]


def _ensure_link(route: IPRoute, index: int, mac: str, *, arp: bool) -> None:
    """Touch the link only if it differs, so that a restarted agent changes nothing."""
    link = route.get_links(index)[0]
    no_arp = bool(link["flags"] & 0x80)
    up = bool(link["flags"] & 0x1)
    right = (link.get_attr("IFLA_ADDRESS"), link.get_attr("IFLA_MTU"), no_arp, up)
    if right != (mac, MTU, not arp, True):
        route.link("set", index=index, address=mac, mtu=MTU, arp=arp, state="up")


def _ensure_route(route: IPRoute, inner: int, network: ipaddress.IPv4Network) -> None:
    """All identities are behind one neighbour: the neighbour table does not grow with VMs."""
    gateway = str(network.network_address)
    neighbours = [
        (neighbour.get_attr("NDA_LLADDR"), neighbour["state"])
        for neighbour in route.get_neighbours(ifindex=inner, family=socket.AF_INET)
        if neighbour.get_attr("NDA_DST") == gateway
    ]
    if neighbours != [(OUTER_MAC, _PERMANENT)]:
        route.neigh("replace", dst=gateway, lladdr=OUTER_MAC, ifindex=inner, state=_PERMANENT)
    try:
        taken = route.route("get", dst=str(network.network_address + 1))[0]
        right = (taken.get_attr("RTA_OIF"), taken.get_attr("RTA_GATEWAY")) == (inner, gateway)
    except NetlinkError:
        right = False  # no route at all
    if not right:
        route.route("replace", dst=str(network), gateway=gateway, oif=inner, flags=["onlink"])
