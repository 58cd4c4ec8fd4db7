# SPDX-License-Identifier: Apache-2.0
"""The connections that the kernel tracks: finds those of RODVR, and cuts them.

A connection is cut by deleting its entry in the kernel's table. The VM's next packet then belongs to no
connection, and the `stale` chain answers it with a reset; the daemon's next packet finds no socket on this
host and is reset too. `resets` makes both ends send such a packet: a daemon that goes on for other leases of
this host would otherwise wait for a program that is gone, until its TCP keepalive if it has one.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import NamedTuple

from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_CTNETLINK
from pyroute2.netlink.nfnetlink import nfctsocket as nfct

from gsaas.netlink import wire
from gsaas.netlink.namespace import entered
from gsaas.netlink.transport import NetlinkRefused, Nfnetlink
from gsaas.netlink.wire import Message
from gsaas.objects.address import Address
from gsaas.objects.endpoint_report import ConntrackLevel
from gsaas.rodvr.kernel import resets
from gsaas.rodvr.plan import Connection, Cut, LocalCut

_SUBSYSTEM = NFNL_SUBSYS_CTNETLINK << 8
_TCP = b"\x06"
# Attribute numbers of linux/netfilter/nfnetlink_conntrack.h.
_TUPLE_ORIGINAL, _TUPLE_REPLY, _STATUS, _PROTOCOL_STATE = 1, 2, 3, 4
_ZONE, _FILTER, _STATUS_MASK = 18, 25, 26
_TUPLE_IP, _TUPLE_PROTOCOL = 1, 2
_IP_SOURCE, _IP_DESTINATION = 1, 2
_PROTOCOL_NUMBER, _PORT_SOURCE, _PORT_DESTINATION = 1, 2, 3
_FILTER_ORIGINAL_FLAGS = 1
_OF_TCP, _TCP_STATE = 1, 1
_ESTABLISHED = b"\x03"
"""TCP_CONNTRACK_ESTABLISHED of linux/netfilter/nf_conntrack_tcp.h."""
_DESTINATION_TRANSLATED = 0x20
"""IPS_DST_NAT, the status of a connection whose destination was translated."""


class _TrackedConnection(NamedTuple):
    """One IPv4 TCP connection.

    To delete it, the kernel has to be given its original tuple and its zone as they were read.
    """

    original: bytes
    zone: bytes | None
    client: Address
    masked: Address
    real: Address
    seen: Address
    """What the daemon sees as its client: an address of this host, or the client itself."""
    established: bool
    """Neither has ended it."""


_SYSCTLS = Path("/proc/sys/net/netfilter")


def table_level(netns: str | None) -> ConntrackLevel | None:
    """Return how full the kernel's table of connections is in *netns*; None while the kernel tracks none."""
    try:
        with entered(netns):
            entries, limit = (
                int((_SYSCTLS / f"nf_conntrack_{name}").read_text()) for name in ("count", "max")
            )
    except FileNotFoundError:
        return None
    return ConntrackLevel(entries, limit)


class Conntrack:
    """Reads and cuts connections.

    Linux 6.8 and later delete all connections that a filter matches. Before that, and with *filtered*
    False, every connection is deleted by itself.
    """

    def __init__(self, netlink: Nfnetlink, netns: str | None, *, filtered: bool = True) -> None:
        self._netlink = netlink
        self._netns = netns
        self._filtered = filtered

    def cut(self, cuts: Iterable[Cut | LocalCut], *, silently: bool = False) -> None:
        """Delete the connections of *cuts* and reset them at both ends.

        It is no error if there are none. Raises `NetlinkRefused` if the kernel refuses. *silently* leaves
        the resets out, and with them what takes time: to find the clients, the kernel goes through its
        whole table (10 ms).
        """
        cuts = set(cuts)
        port_cuts = {cut for cut in cuts if isinstance(cut, Cut)}
        self._cut_local({cut.masked for cut in cuts if isinstance(cut, LocalCut)})
        if silently and self._delete_by_filter(port_cuts):
            return
        # Before they are deleted: afterwards, it is unknown which clients to reset.
        entries = [
            entry
            for identity in sorted({cut.identity for cut in port_cuts})
            for entry in self._entries(_filter(Cut(identity)))
            if not port_cuts.isdisjoint((Cut(identity), Cut(identity, entry.masked)))
            and entry.client.ip == identity  # kernels before 5.8 do not filter
        ]
        if not self._delete_by_filter(port_cuts):
            self._delete(entries)
        # What a daemon of this host sent to a VM's identity would show its real address to the VM.
        self._reset(entries, (entry for entry in entries if entry.seen != entry.client))

    def forget(self, *networks: ipaddress.IPv4Network, translated: bool = True) -> None:
        """Delete the TCP connections from or to an address of *networks*, and reset none at its client.

        With *translated* False, only those that are as they were opened: no translation leads them elsewhere.
        """
        self._delete(
            entry
            for entry in self._entries()
            if (translated or entry.masked == entry.real)
            and any(
                _is_in(end, network) for end in (entry.client, entry.masked) for network in networks
            )
        )

    def connections(self, network: ipaddress.IPv4Network) -> list[Connection]:
        """Return all TCP connections that were opened from *network*, the identity network."""
        return [
            Connection(entry.client.ip, entry.masked, entry.real)
            for entry in self._entries()
            if _is_in(entry.client, network)
        ]

    def count_by_client(self, network: ipaddress.IPv4Network) -> dict[str, int]:
        """Return address -> how many TCP connections from there are open, of the addresses in *network*.

        The kernel remembers one for two minutes after it was closed; those do not count.
        """
        counts = Counter(entry.client.ip for entry in self._open())
        return {ip: count for ip, count in counts.items() if ipaddress.IPv4Address(ip) in network}

    def count_by_masked(self, network: ipaddress.IPv4Network) -> dict[Address, int]:
        """Return address -> how many TCP connections to it are open, of those in *network*, the local prefix."""
        return Counter(entry.masked for entry in self._open() if _is_in(entry.masked, network))

    def connections_to(self, network: ipaddress.IPv4Network) -> list[tuple[Address, Address]]:
        """Return all TCP connections that were opened to *network*, the local prefix, as (masked, real)."""
        return [
            (entry.masked, entry.real) for entry in self._entries() if _is_in(entry.masked, network)
        ]

    def _open(self) -> Iterator[_TrackedConnection]:
        """Yield the open connections whose destination was translated.

        Linux 5.18 and later leave out the others, so the tables of other programs cost little.
        """
        translated = wire.be32(_STATUS, _DESTINATION_TRANSLATED)
        only = translated + wire.be32(_STATUS_MASK, _DESTINATION_TRANSLATED)
        return (entry for entry in self._entries(only) if entry.established)

    def _cut_local(self, masked: Set[Address]) -> None:
        """Cut the connections to *masked*.

        The table is read once for all of them: they have no identity to filter by.
        """
        if not masked:
            return
        entries = [entry for entry in self._entries() if entry.masked in masked]
        self._delete(entries)
        self._reset(entries, entries)

    def _reset(
        self, at_clients: Iterable[_TrackedConnection], at_daemons: Iterable[_TrackedConnection]
    ) -> None:
        resets.provoke_resets(self._netns, ((each.client, each.masked) for each in at_clients))
        # What is over would be begun again.
        open_ = (each for each in at_daemons if each.established)
        resets.reset_daemons(self._netns, ((each.real, each.seen) for each in open_))

    def _delete_by_filter(self, cuts: Iterable[Cut]) -> bool:
        if not self._filtered:
            return False
        try:
            for cut in cuts:
                kind = _SUBSYSTEM | nfct.IPCTNL_MSG_CT_DELETE
                what = f"cut connections of {cut.identity}"
                self._netlink.request(Message(kind, socket.AF_INET, _filter(cut), 0, what, 1))
        except NetlinkRefused as refusal:
            if refusal.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
            self._filtered = False  # this kernel does not support filters; do not ask again
        return self._filtered

    def _delete(self, entries: Iterable[_TrackedConnection]) -> None:
        for entry in entries:
            body = wire.nested(_TUPLE_ORIGINAL, entry.original)
            if entry.zone is not None:
                body += wire.attribute(_ZONE, entry.zone)
            kind = _SUBSYSTEM | nfct.IPCTNL_MSG_CT_DELETE
            try:
                self._netlink.request(Message(kind, socket.AF_INET, body, 0, "cut connection", 1))
            except NetlinkRefused as refusal:
                if refusal.errno != errno.ENOENT:  # it ended by itself meanwhile
                    raise

    def _entries(self, filter_: bytes = b"") -> Iterator[_TrackedConnection]:
        kind = _SUBSYSTEM | nfct.IPCTNL_MSG_CT_GET
        request = Message(kind, socket.AF_INET, filter_, 0, "read connections", 1)
        for body in self._netlink.dump(request):
            fields = wire.by_kind(body)
            original, reply = fields.get(_TUPLE_ORIGINAL), fields.get(_TUPLE_REPLY)
            if original is not None and reply is not None and _is_tcp(original):
                client, masked = _ends(original)
                real, seen = _ends(reply)
                yield _TrackedConnection(
                    original,
                    fields.get(_ZONE),
                    client,
                    masked,
                    real,
                    seen,
                    _state(fields) == _ESTABLISHED,
                )


def _filter(cut: Cut) -> bytes:
    """Return the attributes of a request that restrict it to the connections of *cut*."""
    flags = nfct.FILTER_FLAG_CTA_IP_SRC | nfct.FILTER_FLAG_CTA_PROTO_NUM
    ip = [wire.attribute(_IP_SOURCE, socket.inet_aton(cut.identity))]
    protocol = [wire.attribute(_PROTOCOL_NUMBER, _TCP)]
    if cut.masked is not None:
        flags |= nfct.FILTER_FLAG_CTA_IP_DST | nfct.FILTER_FLAG_CTA_PROTO_DST_PORT
        ip.append(wire.attribute(_IP_DESTINATION, socket.inet_aton(cut.masked.ip)))
        protocol.append(wire.attribute(_PORT_DESTINATION, cut.masked.port.to_bytes(2, "big")))
    address, service = wire.nested(_TUPLE_IP, *ip), wire.nested(_TUPLE_PROTOCOL, *protocol)
    compared = wire.attribute(_FILTER_ORIGINAL_FLAGS, struct.pack("=I", flags))
    return wire.nested(_TUPLE_ORIGINAL, address, service) + wire.nested(_FILTER, compared)


def _is_tcp(tuple_: bytes) -> bool:
    protocol = wire.by_kind(wire.by_kind(tuple_).get(_TUPLE_PROTOCOL, b""))
    return protocol.get(_PROTOCOL_NUMBER) == _TCP


def _state(fields: Mapping[int, bytes]) -> bytes | None:
    of_tcp = wire.by_kind(fields.get(_PROTOCOL_STATE, b"")).get(_OF_TCP, b"")
    return wire.by_kind(of_tcp).get(_TCP_STATE)


def _ends(tuple_: bytes) -> tuple[Address, Address]:
    """Return (source, destination) of a TCP tuple."""
    fields = wire.by_kind(tuple_)
    ip, protocol = wire.by_kind(fields[_TUPLE_IP]), wire.by_kind(fields[_TUPLE_PROTOCOL])
    return (
        _address(ip[_IP_SOURCE], protocol[_PORT_SOURCE]),
        _address(ip[_IP_DESTINATION], protocol[_PORT_DESTINATION]),
    )


def _is_in(address: Address, network: ipaddress.IPv4Network) -> bool:
    return ipaddress.IPv4Address(address.ip) in network


def _address(ip: bytes, port: bytes) -> Address:
    return Address(socket.inet_ntoa(ip), int.from_bytes(port, "big"))
