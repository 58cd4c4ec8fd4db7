# SPDX-License-Identifier: Apache-2.0
"""TCP sockets of a network namespace, as sock_diag(7) lists them. Every function raises `OSError`.

The kernel walks through the table of listeners for listeners alone. The files /proc/net/tcp and /proc/net/tcp6 are made
from the table of all connections of the machine, which takes milliseconds even where there are none.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

# From linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h, which Python's socket module does not have.
_NETLINK_SOCK_DIAG = 4
_BY_FAMILY, _DESTROY = 20, 21
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_HEADER = struct.Struct("=IHHII")
_REQUEST_BODY = struct.Struct("=BBBBI")
_IDENTITY = slice(4, 52)
"""Where an answer has ports (4 bytes), addresses (16 each), device and cookie: struct inet_diag_sockid."""
_TIMEOUT = 10.0

CONNECTED = sum(1 << state for state in (1, 2, 3, 4, 5, 8, 9, 11))
"""All states of TCP except TIME_WAIT, CLOSE and LISTEN."""
LISTENING = 1 << 10


def open_socket() -> socket.socket:
    """Return a socket for the other functions, of the network namespace of this thread."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
    netlink.bind((0, 0))
    netlink.settimeout(_TIMEOUT)
    return netlink


def identities(netlink: socket.socket, family: int, states: int, port: int = 0) -> Iterator[bytes]:
    """Yield the identity of each socket in one of *states*, a set of bits; with *port*, of those at that local port."""
    body = _REQUEST_BODY.pack(family, socket.IPPROTO_TCP, 0, 0, states)
    body += port.to_bytes(2, "big") + bytes(46)
    netlink.send(_HEADER.pack(16 + len(body), _BY_FAMILY, _REQUEST | _DUMP, 1, 0) + body)
    while True:
        for kind, answer in _received(netlink):
            if kind == _DONE:
                return
            if kind == _ERROR:
                raise OSError(-struct.unpack_from("=i", answer)[0], "sockets cannot be listed")
            yield answer[_IDENTITY]


def destroy(netlink: socket.socket, family: int, identity: bytes) -> int:
    """End a connection; return 0, or the errno of the kernel's refusal."""
    body = _REQUEST_BODY.pack(family, socket.IPPROTO_TCP, 0, 0, CONNECTED) + identity
    netlink.send(_HEADER.pack(16 + len(body), _DESTROY, _REQUEST | _ACK, 2, 0) + body)
    code = 0
    for kind, answer in _received(netlink):
        if kind == _ERROR:
            code = -struct.unpack_from("=i", answer)[0]
    return code


def _received(netlink: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Yield type and body of the messages of one datagram."""
    datagram = netlink.recv(1 << 18)
    offset = 0
    while offset + 16 <= len(datagram):
        length, kind, _, _, _ = _HEADER.unpack_from(datagram, offset)
        yield kind, datagram[offset + 16 : offset + length]
        offset += (length + 3) & ~3
