# SPDX-License-Identifier: Apache-2.0
"""Events of the kernel: links that appear, change and disappear, and changes to RODVR's tables.

An event only says what to read again; its content is not relied on. When some are lost (`overrun`),
everything is to be read again.
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
    """The events since the last wait."""

    links: dict[int, str] = field(default_factory=dict)
    """Interface index -> its latest name, of links that appeared, changed or disappeared."""
    tables: set[int] = field(default_factory=set)
    """Netlink port ids of the senders that changed RODVR's tables, the endpoint's own included."""
    overrun: bool = False
    """Some events were lost."""


class Watch:
    """Waits for events in one thread; `wake` and `watch_tables` may be called from any.

    *netns* is the name of a network namespace, None for that of this process; *tables* as `watch_tables`.
    """

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
        """Also report changes to RODVR's tables, for kernels without table owners. May be repeated."""
        self._tables.setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, _GROUP_NFTABLES)

    def wake(self) -> None:
        """End the current wait, or the next one if there is none."""
        os.eventfd_write(self._wake, 1)

    def wait(self, seconds: float) -> Events:
        """Return the events since the last call; waits up to *seconds* for the first of them.

        They are empty after that time, and after `wake`.
        """
        events = Events()
        ready = [descriptor for descriptor, _ in self._poll.poll(max(0, seconds) * 1000)]
        if self._wake in ready:
            os.eventfd_read(self._wake)
        if self._links.fileno() in ready:
            for kind, _, body in _received(self._links, events):
                # A port that leaves a bridge is announced as a deleted link too, of the bridge family. The
                # link is looked up again in any case, so this needs no distinction.
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
        """Close the sockets. No wait may be under way."""
        self._links.close()
        self._tables.close()
        os.close(self._wake)


def _received(source: socket.socket, events: Events) -> list[tuple[int, int, bytes]]:
    """Return (type, sender, body) of all messages that can be received now."""
    messages: list[tuple[int, int, bytes]] = []
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
