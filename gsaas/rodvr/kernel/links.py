# SPDX-License-Identifier: Apache-2.0
"""The veth pair, the routes and the per-device settings; the interface indexes of taps.

Only devices are configured, never the host: forwarding is enabled for rodvr1 and the GPU NIC alone. The
GPU NIC's former setting is written into rodvr0's alias, where any later process (and any operator, with
`ip link`) finds it, so that `remove` can restore it.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from gsaas.netlink.namespace import entered
from gsaas.netlink.transport import NetlinkRefused
from gsaas.rodvr.kernel.ruleset import INNER, INNER_MAC, OUTER, OUTER_MAC
from gsaas.rodvr.path import Connection
from gsaas.rodvr.real_addresses import HostAddresses

MTU = 65535
"""veth drops packets that are longer than its MTU and cannot be segmented, so the pair must not be the limit."""
_SIOCGIFINDEX = 0x8933
_SIOCGIFADDR = 0x8915
_NAME_SIZE = 16
_PERMANENT = 0x80
_UP, _NO_ARP = 0x1, 0x80
_LINK_SCOPE = 253
_UNICAST = 1
PROTOCOL = 71
"""Marks RODVR's routes: `ip route show proto 71`. iproute2's list has no other use of this number."""
_ALIAS = re.compile(r"rodvr: (\S+) forwarding was ([01])")


class Links:
    """Links of one network namespace; safe to share between threads.

    Methods raise `OSError`, mostly as `NetlinkRefused`, if the kernel refuses what they ask for.
    """

    def __init__(self, netns: str | None = None) -> None:
        self._netns = netns
        with entered(netns):
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def index(self, name: str) -> int | None:
        """Return the interface index of *name*, None if there is none; `ValueError` for a name of another length."""
        if not 0 < len(name.encode()) < _NAME_SIZE:
            raise ValueError(f"{name!r} is not an interface name: it has to have 1 to 15 bytes")
        request = struct.pack("16si20x", name.encode(), 0)
        try:
            answer = fcntl.ioctl(self._socket, _SIOCGIFINDEX, request)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            return None
        return int(struct.unpack_from("16si", answer)[1])

    def address(self, name: str) -> str | None:
        """Return the first IPv4 address of *name*; None if it has none, or if there is no such interface."""
        request = struct.pack("16s24x", name.encode())
        try:
            answer = fcntl.ioctl(self._socket, _SIOCGIFADDR, request)
        except OSError as error:
            if error.errno not in (errno.ENODEV, errno.EADDRNOTAVAIL):
                raise
            return None
        return socket.inet_ntoa(answer[20:24])

    def host_addresses(self, device: str, *, routes: bool) -> HostAddresses:
        """Return the IPv4 addresses of this host and, with *routes*, the networks that it reaches through *device*."""
        index = self.index(device)
        with self._routing("read the addresses of this host") as route:
            found = list(route.get_addr(family=socket.AF_INET))
            own = {each.get_attr("IFA_LOCAL"): _interface_name(each["index"]) for each in found}
            if index is None or not routes:
                return HostAddresses(own)
            reached = {
                (each.get_attr("IFA_ADDRESS"), each["prefixlen"])
                for each in found
                if each["index"] == index
            }
            reached |= {
                (each.get_attr("RTA_DST"), each["dst_len"])
                for each in route.get_routes(family=socket.AF_INET, oif=index)
                if each["type"] == _UNICAST and each["dst_len"] and each["proto"] != PROTOCOL
            }
        networks = frozenset(
            ipaddress.IPv4Network(f"{address}/{length}", strict=False)
            for address, length in reached
        )
        return HostAddresses(own, networks)

    def ensure_pair(self, identity_network: ipaddress.IPv4Network) -> int:
        """Create the pair, its neighbour and its route where they are missing; return the index of rodvr0.

        What is right already is not changed: other programs listen to changes of routes and links.
        """
        with self._routing(f"set up {OUTER} and {INNER}") as route:
            if self.index(OUTER) is None:
                peer = {"ifname": INNER, "mtu": MTU}
                route.link("add", ifname=OUTER, kind="veth", mtu=MTU, peer=peer)
            outer, inner = self._required_index(OUTER), self._required_index(INNER)
            _ensure_link(route, outer, OUTER_MAC, arp=True)
            _ensure_link(route, inner, INNER_MAC, arp=False)
        with self._routing(f"route {identity_network} to {INNER} (is lo up?)") as route:
            _ensure_route(route, inner, identity_network)
        for device in (OUTER, INNER):
            # Nothing but forwarded IPv4 belongs here; a host without IPv6 has no such file.
            with suppress(FileNotFoundError):
                self._write_sysctl(f"ipv6/conf/{device}/disable_ipv6", "1")
        self._write_sysctl(f"ipv4/conf/{INNER}/forwarding", "1")
        return outer

    def ensure_route(self, device: str, prefix: ipaddress.IPv4Network) -> None:
        """Route connections of this host to *prefix* out of *device*, with its address and its MTU.

        Without such a device, or while it is down, do nothing; a link event follows when it is up.
        """
        index = self.index(device)
        if index is None:
            return
        with self._routing(f"route {prefix} to {device}") as route:
            link = route.get_links(index)[0]
            if not link["flags"] & _UP or _route_interfaces(route, prefix) == [index]:
                return
            route.route("replace", dst=str(prefix), oif=index, scope=_LINK_SCOPE, proto=PROTOCOL)

    def forwarding(self, device: str) -> bool:
        """Return whether *device* forwards; `FileNotFoundError` if there is no such device."""
        return self._read_sysctl(f"ipv4/conf/{device}/forwarding") == "1"

    def set_forwarding(self, device: str, enabled: bool) -> None:
        """Let *device* forward or not; `FileNotFoundError` if there is no such device."""
        self._write_sysctl(f"ipv4/conf/{device}/forwarding", "1" if enabled else "0")

    def remember_forwarding(self, device: str, enabled: bool) -> None:
        """Write into rodvr0's alias what the GPU NIC's setting was before RODVR."""
        with self._routing(f"write the alias of {OUTER}") as route:
            alias = f"rodvr: {device} forwarding was {int(enabled)}"
            route.link("set", index=self._required_index(OUTER), ifalias=alias)

    def remembered_forwarding(self) -> tuple[str, bool] | None:
        """Return (GPU NIC, whether it forwarded before RODVR), None without a record of it."""
        index = self.index(OUTER)
        if index is None:
            return None
        with self._routing(f"read the alias of {OUTER}") as route:
            alias = route.get_links(index)[0].get_attr("IFLA_IFALIAS") or ""
        match = _ALIAS.fullmatch(alias)
        return (match[1], match[2] == "1") if match else None

    def restore_forwarding(self) -> None:
        """Restore the setting that `remember_forwarding` recorded, if any."""
        remembered = self.remembered_forwarding()
        if remembered is not None:
            device, enabled = remembered
            with suppress(FileNotFoundError):  # the NIC is gone, and its setting with it
                self.set_forwarding(device, enabled)

    def loose_pickup(self) -> bool:
        """Return whether the kernel begins to track connections in their middle, as it does by default."""
        try:
            return self._read_sysctl("netfilter/nf_conntrack_tcp_loose") != "0"
        except FileNotFoundError:
            return True

    def detours(self, connections: Iterable[Connection]) -> list[str]:
        """Return sentences for operators about *connections* whose packets the kernel would route elsewhere.

        It is asked for the route of packets as if they had come in: so rules of policy routing and reverse path filters
        are part of the answer.
        """
        found = {}
        with self._routing("look up routes") as route:
            for each in connections:
                if each.real is None:
                    continue
                ways = (
                    (each.identity, each.real.ip, each.inner, each.gpu_device),
                    (each.real.ip, each.identity, each.gpu_device, each.inner),
                )
                for source, destination, coming, going in ways:
                    if (
                        wrong := self._detour(route, source, destination, coming, going)
                    ) is not None:
                        found[coming, destination] = wrong
        return list(found.values())

    def _detour(
        self, route: IPRoute, source: str, destination: str, coming: str, going: str
    ) -> str | None:
        """Return a sentence about a packet that does not leave through *going*; None if it does, or that is unknown."""
        indexes = [index for name in (coming, going) if (index := self.index(name)) is not None]
        if len(indexes) < 2 or not all(
            route.get_links(index)[0]["flags"] & _UP for index in indexes
        ):
            return None
        where = f"packets from {source} to {destination} that come in at {coming}"
        remedy = "look at ip rule, ip route and the rp_filter settings"
        try:
            taken = route.route("get", dst=destination, src=source, iif=indexes[0])[0]
        except NetlinkError as error:
            return f"{where} are not routed to {going} but dropped ({os.strerror(error.code)}); {remedy}"
        if taken.get_attr("RTA_OIF") == indexes[1]:
            return None
        other = _interface_name(taken.get_attr("RTA_OIF") or 0)
        return f"{where} are routed to {other} and not to {going}; {remedy}"

    def remove(self, prefix: ipaddress.IPv4Network) -> None:
        """Delete the pair and the route to *prefix*, and restore the GPU NIC's setting.

        Neighbour, route and settings of the pair disappear with it.
        """
        self.restore_forwarding()
        with self._routing(f"delete the route to {prefix}") as route:
            for index in _route_interfaces(route, prefix):
                route.route("del", dst=str(prefix), oif=index, scope=_LINK_SCOPE, proto=PROTOCOL)
        outer = self.index(OUTER)
        if outer is not None:
            with self._routing(f"delete {OUTER}") as route:
                route.link("del", index=outer)

    @contextmanager
    def _routing(self, what: str) -> Iterator[IPRoute]:
        """Yield a routing socket in the namespace; its errors become `NetlinkRefused`, which name *what* was done."""
        try:
            with entered(self._netns), IPRoute() as route:
                yield route
        except NetlinkError as error:
            raise NetlinkRefused(error.code, what) from error

    def _required_index(self, name: str) -> int:
        index = self.index(name)
        if index is None:
            raise OSError(errno.ENODEV, f"there is no interface {name}, though its peer is there")
        return index

    def _read_sysctl(self, key: str) -> str:
        with entered(self._netns):
            return (Path("/proc/sys/net") / key).read_text().strip()

    def _write_sysctl(self, key: str, value: str) -> None:
        with entered(self._netns):
            path = Path("/proc/sys/net") / key
            if path.read_text().strip() != value:
                path.write_text(value)


def _interface_name(index: int) -> str:
    """Return the name of an interface of the present namespace; the index as text if it has gone meanwhile."""
    try:
        return socket.if_indextoname(index)
    except OSError:
        return str(index)


def _route_interfaces(route: IPRoute, prefix: ipaddress.IPv4Network) -> list[int]:
    """Return the indexes of the interfaces to which RODVR's routes to *prefix* lead."""
    network = str(prefix.network_address)
    return [
        found.get_attr("RTA_OIF")
        for found in route.get_routes(family=socket.AF_INET, proto=PROTOCOL)
        if (found.get_attr("RTA_DST"), found["dst_len"]) == (network, prefix.prefixlen)
    ]


def _ensure_link(route: IPRoute, index: int, mac: str, *, arp: bool) -> None:
    """Change the link only if it differs, so that a restarted endpoint changes nothing."""
    link = route.get_links(index)[0]
    no_arp = bool(link["flags"] & _NO_ARP)
    up = bool(link["flags"] & _UP)
    current = (link.get_attr("IFLA_ADDRESS"), link.get_attr("IFLA_MTU"), no_arp, up)
    if current != (mac, MTU, not arp, True):
        # As numbers: of `arp` and `state` in one request, some releases of pyroute2 obey only one.
        flags = _UP if arp else _UP | _NO_ARP
        route.link("set", index=index, address=mac, mtu=MTU, flags=flags, change=_UP | _NO_ARP)


def _ensure_route(route: IPRoute, inner: int, network: ipaddress.IPv4Network) -> None:
    """Route *network* by one permanent neighbour, so that the neighbour table does not grow with VMs."""
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
