"""What the kernel tells without being asked: links that come and go, and others at our tables.

Events are hints. Each says where to look again, never what to believe; losing some (`overrun`) means
looking everywhere.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from dataclasses import dataclass, field

from pyroute2.netlink import NETLINK_NETFILTER, NETLINK_ROUTE
from pyroute2.netlink.rtnl import RTM_DELLINK, RTM_NEWLINK, RTMGRP_LINK

from gsaas.netlink import wire
from gsaas.netlink.expressions import SUBSYSTEM
from gsaas.netlink.namespace import entered
from gsaas.rodvr.kernel.ruleset import TABLE

_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP = 270, 1
_GROUP_NFTABLES = 7
_NFT_MSG_NEWGEN = 15
_IFLA_IFNAME = 3
_LINK_HEADER = struct.Struct("=BxHiII")
_MESSAGE_HEADER = struct.Struct("=IHHII")


@dataclass
class Events:
    """What happened since the last wait."""

    links: dict[int, str] = field(default_factory=dict)
    """Interface index -> name, of links that appeared, changed or went."""
    tables: set[int] = field(default_factory=set)
    """Senders that changed our tables, ourselves included."""
    overrun: bool = False
    """Some events were lost."""


class Watch:
    """A wait that ends at the next event, at a call of `wake`, or in time."""

    def __init__(self, netns: str | None = None, *, tables: bool = False) -> None:
        with entered(netns):
            self._links = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
            self._tables = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self._links.bind((0, RTMGRP_LINK))
        self._tables.bind((0, 0))
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        for descriptor in (self._links.fileno(), self._tables.fileno(), self._wake):
            self._poll.register(descriptor, select.POLLIN)
        if tables:
            self.watch_tables()

    def watch_tables(self) -> None:
        """Also report changes to our tables: for kernels that cannot protect them."""
        self._tables.setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, _GROUP_NFTABLES)

    def wake(self) -> None:
        """End the wait of another thread."""
        os.eventfd_write(self._wake, 1)

    def wait(self, seconds: float) -> Events:
        """Events that came in, after *seconds* at the latest; empty if none did."""
        events = Events()
        ready = [descriptor for descriptor, _ in self._poll.poll(max(0, seconds) * 1000)]
        if self._wake in ready:
            os.eventfd_read(self._wake)
        if self._links.fileno() in ready:
            for kind, _, body in _received(self._links, events):
                if kind in (RTM_NEWLINK, RTM_DELLINK):
                    _, _, index, _, _ = _LINK_HEADER.unpack_from(body)
                    fields = wire.by_kind(body[_LINK_HEADER.size :])
                    events.links[index] = wire.string(fields.get(_IFLA_IFNAME))
        if self._tables.fileno() in ready:
            for kind, sender, body in _received(self._tables, events):
                if kind == SUBSYSTEM | _NFT_MSG_NEWGEN or kind & 0xFF00 != SUBSYSTEM:
                    continue
                # In every nftables notification the first attribute is the table's name.
                first = next(wire.attributes(body[4:]), None)
                if first is not None and wire.string(first[1]) == TABLE:
                    events.tables.add(sender)
        return events

    def close(self) -> None:
        self._links.close()
        self._tables.close()
        os.close(self._wake)


def _received(source: socket.socket, events: Events) -> list[tuple[int, int, bytes]]:
    """(type, sender, body) of all messages that are there now."""
    messages = []
    while True:
        try:
            datagram = source.recv(1 << 18, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return messages
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            events.overrun = True
            continue
        offset = 0
        while offset + 16 <= len(datagram):
            length, kind, _, _, sender = _MESSAGE_HEADER.unpack_from(datagram, offset)
            messages.append((kind, sender, datagram[offset + 16 : offset + length]))
            offset += (length + 3) & ~3
