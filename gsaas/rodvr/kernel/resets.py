# SPDX-License-Identifier: Apache-2.0
"""Provokes the reset of a connection that was cut, also when its client only waits for an answer.

A reset must carry the sequence number that the client expects, which only the client knows. A segment far
outside its window makes the client acknowledge what it expects (RFC 9293, 3.10.7.4). That answer belongs
to no connection any more, and the `stale` chain resets it with the number that it carries.

The segment comes from a socket in repair mode, which needs CAP_NET_ADMIN where a raw socket would need
CAP_NET_RAW. Such a socket connects and closes without a packet; leaving the mode sends exactly one.

A daemon's answer would come back to that socket. So a daemon gets the SYN of an ordinary socket: it acknowledges
what it expects, and the kernel of this host resets that, whether the socket is still there or not (RFC 9293, 3.5.1).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable

from gsaas.netlink.namespace import entered
from gsaas.objects.address import Address

LOG = logging.getLogger(__name__)

_IP_TRANSPARENT = 19
_TCP_REPAIR, _TCP_REPAIR_QUEUE, _TCP_QUEUE_SEQ = 19, 20, 21
_RECEIVE_QUEUE, _SEND_QUEUE = 1, 2
_HALF_SEQUENCE_SPACE = 1 << 31


def provoke_resets(netns: str | None, connections: Iterable[tuple[Address, Address]]) -> None:
    """Make the clients of *connections*, (client, server), send a packet. Failures are only logged."""
    _send_to_each(netns, connections, _send_segments)


def reset_daemons(netns: str | None, connections: Iterable[tuple[Address, Address]]) -> None:
    """Reset *connections*, (daemon, this host as the daemon sees it), at their daemons. Failures are only logged."""
    _send_to_each(netns, connections, _send_syn)


def _send_to_each(
    netns: str | None,
    connections: Iterable[tuple[Address, Address]],
    send: Callable[[Address, Address], None],
) -> None:
    with entered(netns):
        for end, peer in connections:
            try:
                send(end, peer)
            except OSError as error:
                LOG.warning("the connection of %s to %s could not be reset: %s", end, peer, error)


def _send_syn(daemon: Address, seen: Address) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.setblocking(False)
        # In repair mode, a port can be bound that a program of this host uses.
        stream.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
        stream.bind((seen.ip, seen.port))
        stream.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 0)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            stream.connect((daemon.ip, daemon.port))


def _send_segments(client: Address, server: Address) -> None:
    """Send two segments half the sequence space apart: no window covers both."""
    number = int.from_bytes(os.urandom(4), "big")
    for sequence in (number, (number + _HALF_SEQUENCE_SPACE) % (1 << 32)):
        _send_segment(client, server, sequence)


def _send_segment(client: Address, server: Address, sequence: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
        stream.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
        for queue in (_SEND_QUEUE, _RECEIVE_QUEUE):
            stream.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR_QUEUE, queue)
            stream.setsockopt(
                socket.IPPROTO_TCP, _TCP_QUEUE_SEQ, sequence.to_bytes(4, sys.byteorder)
            )
        stream.bind((server.ip, server.port))
        stream.connect((client.ip, client.port))
        stream.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 0)
        # In repair mode again, closing sends no packet.
        stream.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
