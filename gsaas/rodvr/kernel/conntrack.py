"""Connections the kernel tracks: which of them are ours, and ending them.

An ended connection is not closed for anybody. The VM's next packet belongs to nothing any more, and
the `stale` chain answers it with a reset; the daemon finds out by its TCP keepalive.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from collections.abc import Iterable, Iterator

from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_CTNETLINK
from pyroute2.netlink.nfnetlink import nfctsocket as nfct

from gsaas.rodvr.bindings import Address
from gsaas.rodvr.kernel import wire
from gsaas.rodvr.kernel.transport import Nfnetlink, Refused
from gsaas.rodvr.kernel.wire import Message
from gsaas.rodvr.plan import Connection, Cut

_SUBSYSTEM = NFNL_SUBSYS_CTNETLINK << 8
_TCP = b"\x06"
# Attribute numbers of linux/netfilter/nfnetlink_conntrack.h.
_TUPLE_ORIGINAL, _TUPLE_REPLY, _ZONE, _FILTER = 1, 2, 18, 25
_TUPLE_IP, _TUPLE_PROTOCOL = 1, 2
_IP_SOURCE, _IP_DESTINATION = 1, 2
_PROTOCOL_NUMBER, _PORT_SOURCE, _PORT_DESTINATION = 1, 2, 3
_FILTER_ORIGINAL_FLAGS = 1


class Conntrack:
    """Cuts connections by who opened them.

    Linux 6.8 and later find and delete them in one request (0.3 ms). Before that, and with
    *filtered* False, the whole table is read and each one deleted (10 ms and more).
    """

    def __init__(self, netlink: Nfnetlink, *, filtered: bool = True) -> None:
        self._netlink = netlink
        self._filtered = filtered

    def cut(self, cuts: Iterable[Cut]) -> None:
        """End the connections of *cuts*; `Refused` if the kernel would not. None to end is fine."""
        remaining = list(cuts)
        if self._filtered:
            try:
                for cut in remaining:
                    self._netlink.request(_delete_filtered(cut))
            except Refused as refusal:
                if refusal.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                    raise
                self._filtered = False
            else:
                return
        identities = {cut.identity for cut in remaining}
        wanted = set(remaining)
        for original, _, zone in self._entries():
            identity, masked = _ends(original)[0].ip, _ends(original)[1]
            if identity in identities and wanted & {Cut(identity), Cut(identity, masked)}:
                self._delete(original, zone)

    def connections(self, network: ipaddress.IPv4Network) -> list[Connection]:
        """All TCP connections opened from *network*: the identities."""
        found = []
        for original, reply, _ in self._entries():
            source, masked = _ends(original)
            if ipaddress.IPv4Address(source.ip) in network:
                found.append(Connection(source.ip, masked, _ends(reply)[0]))
        return found

    def _entries(self) -> Iterator[tuple[bytes, bytes, bytes | None]]:
        """(original tuple, reply tuple, zone) of every IPv4 TCP connection."""
        kind = _SUBSYSTEM | nfct.IPCTNL_MSG_CT_GET
        for body in self._netlink.dump(Message(kind, socket.AF_INET, b"", 0, "read connections")):
            fields = wire.by_kind(body)
            original, reply = fields.get(_TUPLE_ORIGINAL), fields.get(_TUPLE_REPLY)
            if original is not None and reply is not None and _is_tcp(original):
                yield original, reply, fields.get(_ZONE)

    def _delete(self, original: bytes, zone: bytes | None) -> None:
        body = wire.nested(_TUPLE_ORIGINAL, original)
        if zone is not None:
            body += wire.attribute(_ZONE, zone)
        kind = _SUBSYSTEM | nfct.IPCTNL_MSG_CT_DELETE
        try:
            self._netlink.request(Message(kind, socket.AF_INET, body, 0, "cut connection", 1))
        except Refused as refusal:
            if refusal.errno != errno.ENOENT:
                raise


def _delete_filtered(cut: Cut) -> Message:
    flags = nfct.FILTER_FLAG_CTA_IP_SRC | nfct.FILTER_FLAG_CTA_PROTO_NUM
    ip = [wire.attribute(_IP_SOURCE, socket.inet_aton(cut.identity))]
    protocol = [wire.attribute(_PROTOCOL_NUMBER, _TCP)]
    if cut.masked is not None:
        flags |= nfct.FILTER_FLAG_CTA_IP_DST | nfct.FILTER_FLAG_CTA_PROTO_DST_PORT
        ip.append(wire.attribute(_IP_DESTINATION, socket.inet_aton(cut.masked.ip)))
        protocol.append(wire.attribute(_PORT_DESTINATION, cut.masked.port.to_bytes(2, "big")))
    opened = wire.nested(
        _TUPLE_ORIGINAL, wire.nested(_TUPLE_IP, *ip), wire.nested(_TUPLE_PROTOCOL, *protocol)
    )
    chosen = wire.nested(_FILTER, wire.attribute(_FILTER_ORIGINAL_FLAGS, struct.pack("=I", flags)))
    kind = _SUBSYSTEM | nfct.IPCTNL_MSG_CT_DELETE
    what = f"cut connections of {cut.identity}"
    return Message(kind, socket.AF_INET, opened + chosen, 0, what, 1)


def _is_tcp(tuple_: bytes) -> bool:
    protocol = wire.by_kind(wire.by_kind(tuple_).get(_TUPLE_PROTOCOL, b""))
    return protocol.get(_PROTOCOL_NUMBER) == _TCP


def _ends(tuple_: bytes) -> tuple[Address, Address]:
    """(source, destination) of a TCP tuple."""
    fields = wire.by_kind(tuple_)
    ip, protocol = wire.by_kind(fields[_TUPLE_IP]), wire.by_kind(fields[_TUPLE_PROTOCOL])
    return (
        _address(ip[_IP_SOURCE], protocol[_PORT_SOURCE]),
        _address(ip[_IP_DESTINATION], protocol[_PORT_DESTINATION]),
    )


def _address(ip: bytes, port: bytes) -> Address:
    return Address(socket.inet_ntoa(ip), int.from_bytes(port, "big"))
