# SPDX-License-Identifier: Apache-2.0
"""Ends connections to daemons of this host (SOCK_DESTROY of sock_diag(7), Linux 4.9).

The daemon's socket fails at once and its client receives a reset, so neither waits for a timeout. Where the kernel was
built without it, the fence's table still cuts the client off, and the daemon learns of it by TCP keepalive.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
import struct
from collections.abc import Collection, Iterator

from gsaas.netlink.namespace import entered
from gsaas.objects.daemon import Admission

LOG = logging.getLogger(__name__)

# From linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h, which Python's socket module does not have.
_NETLINK_SOCK_DIAG = 4
_BY_FAMILY, _DESTROY = 20, 21
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_HEADER = struct.Struct("=IHHII")
_REQUEST_BODY = struct.Struct("=BBBBI")
_STATES = sum(1 << state for state in (1, 2, 3, 4, 5, 8, 9, 11))
"""All states of TCP except TIME_WAIT, CLOSE and LISTEN."""
_IDENTITY = slice(4, 52)
"""Where an answer has ports (4 bytes), addresses (16 each), device and cookie: struct inet_diag_sockid."""
_TIMEOUT = 10.0


def destroy(netns: str | None, removed: Collection[Admission], *, here: str) -> int:
    """End the connections from the addresses to the local ports of *removed*; return how many were ended.

    *here* is the address that stands in *removed* for this host itself. *netns* is a network namespace, None the
    current one. Raises `OSError`.
    """
    if not removed:
        return 0
    targets = {(admission.address, admission.port) for admission in removed}
    ended = 0
    with entered(netns):
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
    with netlink:
        netlink.bind((0, 0))
        netlink.settimeout(_TIMEOUT)
        for family in (socket.AF_INET, socket.AF_INET6):
            for identity in list(_connections(netlink, family)):
                port = int.from_bytes(identity[0:2], "big")
                local, peer = (_address(family, identity[at : at + 16]) for at in (4, 20))
                source = here if peer == local or peer.startswith("127.") else peer
                if (source, port) in targets:
                    ended += _destroy(netlink, family, identity)
    return ended


def _connections(netlink: socket.socket, family: int) -> Iterator[bytes]:
    body = _REQUEST_BODY.pack(family, socket.IPPROTO_TCP, 0, 0, _STATES) + bytes(48)
    netlink.send(_HEADER.pack(16 + len(body), _BY_FAMILY, _REQUEST | _DUMP, 1, 0) + body)
    while True:
        for kind, answer in _received(netlink):
            if kind == _DONE:
                return
            if kind == _ERROR:
                raise OSError(-struct.unpack_from("=i", answer)[0], "connections cannot be listed")
            yield answer[_IDENTITY]


def _destroy(netlink: socket.socket, family: int, identity: bytes) -> bool:
    body = _REQUEST_BODY.pack(family, socket.IPPROTO_TCP, 0, 0, _STATES) + identity
    netlink.send(_HEADER.pack(16 + len(body), _DESTROY, _REQUEST | _ACK, 2, 0) + body)
    for kind, answer in _received(netlink):
        if kind == _ERROR:
            code: int = -struct.unpack_from("=i", answer)[0]
            if code == errno.EOPNOTSUPP:
                LOG.warning(
                    "this kernel cannot end connections (SOCK_DESTROY); daemons learn of it by keepalive"
                )
            return code == 0  # any other error: the connection ended by itself meanwhile
    return False


def _received(netlink: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Yield type and body of the messages of one datagram."""
    datagram = netlink.recv(1 << 18)
    offset = 0
    while offset + 16 <= len(datagram):
        length, kind, _, _, _ = _HEADER.unpack_from(datagram, offset)
        yield kind, datagram[offset + 16 : offset + length]
        offset += (length + 3) & ~3


def _address(family: int, raw: bytes) -> str:
    if family == socket.AF_INET:
        return str(ipaddress.IPv4Address(raw[:4]))
    address = ipaddress.IPv6Address(raw)
    return str(address.ipv4_mapped or address)
